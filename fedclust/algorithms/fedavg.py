"""FedAvg (McMahan et al., AISTATS 2017) and FedProx (Li et al., MLSys 2020)."""

from dataclasses import dataclass, replace

from torch import Tensor

from fedclust.algorithms.base import Info, Method, State, cost, mean_by, sample
from fedclust.federation import Federation
from fedclust.training import LocalSGD


@dataclass(frozen=True)
class FedAvg(Method):
    """McMahan et al. 2017, Algorithm 1: one model, the mean of what the round's clients return, weighted by size."""

    fraction: float = 1.0

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        chosen = sample(fed, self.fraction, seed, t)  # S_t
        theta = self.train(state.models[state.labels[chosen]], fed, chosen, seed, t)  # (n, P)
        models = mean_by(theta, state.labels[chosen], self.weigh(theta, fed, chosen), state.models)
        return state._replace(models=models), cost(state, chosen)

    def weigh(self, theta: Tensor, fed: Federation, chosen: Tensor) -> Tensor:
        """n_k: a client counts by its samples."""
        return fed.sizes[chosen]


def FedProx(train: LocalSGD, mu: float = 0.01, fraction: float = 1.0) -> FedAvg:
    """Li et al. 2020: the local objective gains mu/2 |w - w_t|^2, nothing else changes."""
    return FedAvg(replace(train, prox=mu), fraction)


@dataclass(frozen=True)
class LocalOnly(Method):
    """No federation: every client keeps and trains its own model. The baseline that papers leave out."""

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        return State(theta.repeat(len(fed), 1), fed.ids.new_tensor(range(len(fed))))

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        everyone = state.labels  # client i owns model i
        return state._replace(models=self.train(state.models, fed, everyone, seed, t)), cost(state, everyone, down=0, up=0)

    def admit(self, state: State, fed: Federation, seed: int) -> State:
        start = self.train.model.init(seed).to(state.models)
        return self.init(start, fed, seed)._replace(models=fill(state.models, start, len(fed)))


def fill(models: Tensor, start: Tensor, n: int) -> Tensor:
    """The models so far, and the initial model for everyone new."""
    return start.repeat(n, 1).index_copy_(0, start.new_tensor(range(len(models))).long(), models)
