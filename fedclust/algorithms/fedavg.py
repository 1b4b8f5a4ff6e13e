"""FedAvg (McMahan et al., AISTATS 2017) and FedProx (Li et al., MLSys 2020)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.algorithms.base import Info, Method, State, cost, mean_by, sample
from fedclust.federation import Federation


@dataclass(frozen=True)
class FedAvg(Method):
    """McMahan et al. 2017, Algorithm 1: one model, the mean of what the round's clients return, weighted by size."""

    begins_as: ClassVar[str] = "FedAvg"

    fraction: float = 1.0
    weighted: bool = True  # False: the plain mean, as some authors run it

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        new, chosen, _ = self.average(state, fed, seed, t)
        return new, cost(state, chosen)

    def average(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Tensor, Tensor]:
        """One round inside every cluster: the new state, who took part (n,), what they returned (n, P)."""
        chosen = self.choose(state, fed, seed, t)  # S_t
        received = state.models[state.labels[chosen]]
        theta = self.train(received, fed, chosen, seed, t) if len(chosen) else received  # (n, P)
        models = mean_by(theta, state.labels[chosen], self.weigh(state, theta, fed, chosen), state.models)
        return state._replace(models=models), chosen, theta

    def choose(self, state: State, fed: Federation, seed: int, t: int) -> Tensor:
        """A share of all clients, at random."""
        return sample(fed, self.fraction, seed, t)

    def weigh(self, state: State, theta: Tensor, fed: Federation, chosen: Tensor) -> Tensor:
        """n_k: a client counts by its samples."""
        return fed.sizes[chosen] if self.weighted else torch.ones(len(chosen))


@dataclass(frozen=True)
class FedProx(Method):
    """Li et al. 2020: the local objective gains mu/2 |w - w_t|^2, nothing else changes."""

    mu: float = 0.01
    fraction: float = 1.0

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        return FedAvg(replace(self.train, prox=self.mu), self.fraction).step(state, fed, seed, t)  # type: ignore[type-var]


@dataclass(frozen=True)
class LocalOnly(Method):
    """No federation: every client keeps and trains its own model. The baseline that papers leave out."""

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        return State(theta.repeat(len(fed), 1), torch.arange(len(fed)))

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        everyone = state.labels  # client i owns model i
        models = self.train(state.models, fed, everyone, seed, t)
        return state._replace(models=models), cost(state, everyone, down=0, up=0)

    def trains_newcomers(self, state: State) -> bool:
        return False

    def admit(self, state: State, fed: Federation, seed: int) -> State:
        start = self.train.model.init(seed).to(state.models)
        newcomers = start.repeat(len(fed) - len(state.labels), 1)
        return State(torch.cat([state.models, newcomers]), torch.arange(len(fed)))
