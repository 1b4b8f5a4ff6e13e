"""What every method shares: the state, the protocol, and the steps that several papers take.

A method answers four questions: from which model does a client start, what does it do locally, how
are the returned models weighed, when do the groups change? `simulation.run` is the loop around it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from fedclust.checks import check_fields, number
from fedclust.federation import Federation
from fedclust.geometry import cosine
from fedclust.models import Model
from fedclust.rng import key

Info = dict[str, Any]  # what a round records: numbers, or one number per client (N,)


class State(NamedTuple):
    models: Tensor  # (K, P)  one row per cluster model
    labels: Tensor  # (N,)    client i is served models[labels[i]]
    memory: dict[str, Tensor] = {}  # noqa: RUF012  what a method carries from round to round


class Trainer(Protocol):
    """Many clients' local training: received models (n, P) -> trained models (n, P)."""

    @property
    def model(self) -> Model: ...

    def __call__(
        self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
    ) -> Tensor: ...


@dataclass(frozen=True)
class Method:
    """A paper's answers. Hyper-parameters are fields; `step` is pure: state in, state out."""

    train: Trainer

    # What leaves a client besides models: no trainer's epsilon covers it.
    reveals: ClassVar[tuple[str, ...]] = ()
    # The method as which it trains until it first divides the clients; subclasses say it again.
    begins_as: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        return State(theta[None], torch.zeros(len(fed), dtype=torch.long))  # one model serves all

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        raise NotImplementedError

    def served(self, state: State, fed: Federation, seed: int, t: int) -> State:
        """What clients are scored with, where they adapt the models; not asked in other rounds."""
        return state

    def spent(self, calls: Tensor, fed: Federation, first: int) -> dict[str, Tensor]:
        """What each client's trainings cost its privacy, (N,) each; nothing for plain training.

        `first` clients were there before round 0.
        """
        spent = getattr(self.train, "spent", None)
        return spent(calls, fed) if callable(spent) else {}

    def trains_newcomers(self, state: State) -> bool:
        """Whether `admit` asks a newcomer for one local training. One cluster needs none."""
        return len(state.models) > 1

    def admit(self, state: State, fed: Federation, seed: int, t: int) -> State:
        """Place the newcomers of round t where the paper is silent.

        They train once from the mean model and join the cluster whose model lies most in the
        direction of their update.
        """
        new = torch.arange(len(state.labels), len(fed))
        joined = torch.zeros_like(new)
        if self.trains_newcomers(state):
            middle = self.middle(state)
            theta = self.train(middle.expand(len(new), -1), fed, new, key(seed, "join"), t)
            joined = self.nearest(middle, theta, state.models)
        return state._replace(labels=torch.cat([state.labels, joined]))

    def middle(self, state: State) -> Tensor:
        """The model (P,) that newcomers train from."""
        return state.models.mean(0)

    def nearest(self, middle: Tensor, theta: Tensor, models: Tensor) -> Tensor:
        """The cluster (n,) of newcomers that went from the model `middle` (P,) to `theta`."""
        return cosine(theta - middle, models - middle).argmax(1)  # (n, K) -> (n,)


def sample(
    fed: Federation, fraction: float, seed: int, t: int, among: Tensor | None = None
) -> Tensor:
    """Positions of max(fraction * n, 1) random clients, `among` some or all, in ascending order.

    Each client has a lot of its own, so the draw does not depend on the order of the clients.
    """
    number("(0, 1]", fraction=fraction)
    among = torch.arange(len(fed)) if among is None else among
    if fraction == 1:
        return among
    lots = torch.tensor([key(seed, "sample", t, i) for i in fed.ids[among].tolist()])
    return among[lots.argsort()[: max(int(fraction * len(among)), 1)]].sort().values


def sample_within(fed: Federation, fraction: float, labels: Tensor, seed: int, t: int) -> Tensor:
    """The same share of every cluster, at least one client of each."""
    clusters = [(labels == k).nonzero()[:, 0] for k in labels.unique().tolist()]
    return torch.cat([sample(fed, fraction, seed, t, members) for members in clusters])


def mean_by(theta: Tensor, labels: Tensor, weights: Tensor, models: Tensor) -> Tensor:
    """Weighted mean of the rows `theta` (n, P) per label.

    A label without rows keeps its row of `models` (K, P).
    """
    shares = torch.zeros(len(models), len(theta), dtype=theta.dtype)  # (K, n)
    shares[labels, torch.arange(len(theta))] = weights.to(theta.dtype)
    total = shares.sum(1, keepdim=True)
    return torch.where(total > 0, (shares / total.clamp_min(1e-30)) @ theta, models)


def cost(
    state: State,
    trained: Tensor,
    *,
    down: float | None = None,
    up: float | None = None,
    extra: int = 0,
) -> Info:
    """What the round cost: models sent down and up, extra trainings, bytes, and who trained.

    Each client at the positions `trained` receives and returns one model unless `down` and `up` say
    otherwise. `extra` counts trainings beyond one per participant.
    """
    down = len(trained) if down is None else down
    up = len(trained) if up is None else up
    size = state.models.shape[1] * state.models.element_size()
    everyone = torch.zeros(len(state.labels)).index_fill_(0, trained, 1.0)
    moved = (down + up) * size
    return {"down": down, "up": up, "extra": extra, "bytes": moved, "trained": everyone}
