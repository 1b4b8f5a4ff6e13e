"""FedAvg (McMahan et al., AISTATS 2017), FedProx (Li et al., MLSys 2020), and no federation."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedclust.algorithms.base import Info, Method, State, cost, mean_by, sample
from fedclust.checks import NotNegative, Share, require
from fedclust.federation import Federation
from fedclust.paths import short


@dataclass(frozen=True)
class FedAvg(Method):
    """McMahan et al. 2017, Algorithm 1: the mean of the returned models, weighted by samples."""

    begins_as: ClassVar[str] = "FedAvg"

    fraction: Share = 1.0
    weighted: bool = True  # False: the plain mean, as some authors run it

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        new, chosen, _ = self.average(state, fed, seed, t)
        return new, cost(state, chosen)

    def average(
        self, state: State, fed: Federation, seed: int, t: int
    ) -> tuple[State, Tensor, Tensor]:
        """One round in every cluster: the new state, the participants (n,), their models (n, P)."""
        chosen = self.choose(state, fed, seed, t)  # S_t
        received = state.models[state.labels[chosen]]
        theta = self.train(received, fed, chosen, seed, t) if len(chosen) else received  # (n, P)
        weights = self.weigh(state, theta, fed, chosen)
        models = mean_by(theta, state.labels[chosen], weights, state.models)
        return state._replace(models=models), chosen, theta

    def choose(self, state: State, fed: Federation, seed: int, t: int) -> Tensor:
        return sample(fed, self.fraction, seed, t)

    def weigh(self, state: State, theta: Tensor, fed: Federation, chosen: Tensor) -> Tensor:
        """n_k: a client counts by its samples."""
        return fed.sizes[chosen] if self.weighted else torch.ones(len(chosen))


@dataclass(frozen=True)
class FedProx(Method):
    """Li et al. 2020: the local objective gains mu/2 |w - w_t|^2, nothing else changes."""

    mu: NotNegative = 0.01
    fraction: Share = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        proximal(self.train, self.mu)  # refuses a trainer that has no such term

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        return FedAvg(proximal(self.train, self.mu), self.fraction).step(state, fed, seed, t)


def proximal(train: Any, mu: float) -> Any:
    """The trainer with the term of FedProx; a wrapper, e.g. UpdateNoise, passes it on."""
    names = {field.name for field in fields(train)} if is_dataclass(train) else set()
    if "prox" in names:
        return replace(train, prox=mu)
    needs = f"train={short(train)}: FedProx needs a trainer with a field prox, as LocalSGD"
    require("train" in names, needs)
    return replace(train, train=proximal(train.train, mu))


@dataclass(frozen=True)
class LocalOnly(Method):
    """No federation: every client trains a model of its own. The baseline that papers leave out."""

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        return State(theta.repeat(len(fed), 1), torch.arange(len(fed)))

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        everyone = state.labels  # client i owns model i
        models = self.train(state.models, fed, everyone, seed, t)
        return state._replace(models=models), cost(state, everyone, down=0, up=0)

    def trains_newcomers(self, state: State) -> bool:
        return False

    def admit(self, state: State, fed: Federation, seed: int, t: int) -> State:
        first = self.train.model.init(seed).to(state.models)
        newcomers = first.repeat(len(fed) - len(state.labels), 1)
        return State(torch.cat([state.models, newcomers]), torch.arange(len(fed)))
