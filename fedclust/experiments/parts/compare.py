"""What only the comparison uses: its controls, labels skewed without groups, labels at random.

The controls say what clustering would be worth if the groups were known. `Oracle` and `Told` are
the only methods that read `Federation.group`, the ground truth. They are no methods that anybody
could run: they say how much there is to gain. `FineTuned` reads nothing that a client does not
have.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedclust.algorithms.base import Info, State, sample_within
from fedclust.algorithms.fedavg import FedAvg
from fedclust.assembly import by_table
from fedclust.checks import Count, Number, Positive, checked, require
from fedclust.datasets import Dataset
from fedclust.experiments.parts.ifca import equal_groups
from fedclust.federation import Federation
from fedclust.rng import key, numpy_stream, stream
from fedclust.training import LocalSGD

__all__ = ["FineTuned", "Oracle", "Told", "dirichlet", "poisoned"]

NEVER = -1e4  # the bias of an answer that is forbidden


@checked
def dirichlet(
    data: Dataset, clients: Count, alpha: Positive = 0.5, *, seed: int = 0, **options: Any
) -> Federation:
    """Label skew without groups: a Dirichlet(alpha) draws each client's class mix; one group.

    alpha = 0.1 is very skewed, 100 nearly even.

    >>> from fedclust.datasets import load
    >>> fed = dirichlet(load("glyphs", n=400, n_test=100), clients=5, alpha=1, limit=20)
    >>> fed.group.tolist(), int(fed.sizes.max())
    ([0, 0, 0, 0, 0], 20)
    """
    rng, classes = numpy_stream(seed, "dirichlet"), len(data.classes)
    table = rng.dirichlet(np.full(classes, alpha), clients).clip(1e-100)  # (N, classes)
    fed = by_table(data, table, clients, "clients", seed, **options)
    return replace(fed, group=torch.zeros_like(fed.group))


@checked
def poisoned(
    data: Dataset,
    clients: int,
    share: Annotated[float, "[0, 1)"] = 1 / 3,
    *,
    seed: int = 0,
    **options: Any,
) -> Federation:
    """Clients with equal random shares; a share of them, group 1, has labels at random.

    Their test half is as it was.

    >>> from fedclust.datasets import load
    >>> poisoned(load("glyphs", n=100, n_test=20), clients=6).group.tolist()
    [0, 0, 0, 0, 1, 1]
    """
    fed = equal_groups(data, clients, 1, None, seed, **options)
    group = (torch.arange(clients) >= clients - round(share * clients)).long()
    draw, new = stream(seed, "poisoned"), dict[str, Any]()
    for end in ("", "_val") if fed.y_val is not None else ("",):
        y, mask = getattr(fed, "y" + end), getattr(fed, "mask" + end)
        wrong = torch.randint(fed.classes, y.shape, generator=draw)
        new["y" + end] = torch.where(group[:, None].bool() & mask, wrong, y)
    return replace(fed, group=group, **new)


@dataclass(frozen=True)
class Oracle(FedAvg):
    """FedAvg inside the true groups: the most that knowing the groups can bring.

    A client that changes its group takes its new group's model. No paper's method may do this.
    """

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        return State(theta.repeat(int(fed.group.max()) + 1, 1), fed.group)

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        return super().step(state._replace(labels=fed.group), fed, seed, t)

    def choose(self, state: State, fed: Federation, seed: int, t: int) -> Tensor:
        return sample_within(fed, self.fraction, state.labels, seed, t)

    def trains_newcomers(self, state: State) -> bool:
        return False

    def admit(self, state: State, fed: Federation, seed: int, t: int) -> State:
        missing = int(fed.group.max()) + 1 - len(state.models)  # a group that nobody was in
        first = self.train.model.init(seed).to(state.models).expand(max(missing, 0), -1)
        return State(torch.cat([state.models, first]), fed.group)


@dataclass(frozen=True)
class Told(FedAvg):
    """FedAvg that may only answer labels which the client's true group holds.

    It trains exactly like FedAvg. The served models differ from the trained one in the last bias,
    which forbids the other labels: what clusters would bring if knowing the labels were all.
    """

    begins_as: ClassVar[str] = "FedAvg"

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        last = list(self.train.model.module(theta).parameters())[-1]
        require(
            last.shape == (fed.classes,),
            f"model={self.train.model.name!r}: its last parameter must be the bias of the answers, "
            f"one for each of {fed.classes} classes",
        )
        return super().init(theta, fed, seed)

    def served(self, state: State, fed: Federation, seed: int, t: int) -> State:
        """One row per group: the model (1, P) with a bias for the labels that the group holds."""
        held = (one_hot(fed.y, fed.classes).bool() & fed.mask[..., None]).any(1)  # (N, classes)
        groups = fed.group.unique()
        known = torch.stack([held[fed.group == k].any(0) for k in groups])  # (groups, classes)
        models = state.models.repeat(len(groups), 1)
        answers = models[:, -fed.classes :]
        answers[~known] = NEVER
        return State(models, torch.searchsorted(groups, fed.group))


@dataclass(frozen=True)
class FineTuned(FedAvg):
    """FedAvg, and before it is scored each client trains the model alone for some `epochs`.

    What a client trains alone stays with it and is forgotten in the next round. The record counts
    no cost of it: in use it is done once, at the end.
    """

    begins_as: ClassVar[str] = "FedAvg"

    train: LocalSGD
    epochs: Number = 5

    def served(self, state: State, fed: Federation, seed: int, t: int) -> State:
        models, everyone = state.models.repeat(len(fed), 1), torch.arange(len(fed))
        if self.epochs:
            alone = replace(self.train, epochs=self.epochs, steps=None)
            models = alone(models, fed, everyone, key(seed, "alone"), t)
        return State(models, everyone)
