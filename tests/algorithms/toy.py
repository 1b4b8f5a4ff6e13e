"""Federations and trainers small enough to work out by hand, and an easy one for real training."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedclust.federation import Federation
from fedclust.models import Model, mlp
from fedclust.rng import stream


def toy_model() -> Model:
    """One pixel, two classes: 4 numbers (2 weights, 2 biases)."""
    return mlp((1, 1, 1), 2, hidden=())


@dataclass(frozen=True, eq=False)
class Toward:
    """Client `id` goes `rate` of the way from the model it received to targets[id]; rate 1 lands on
    the target.

    `prox` holds it back by 1 / (1 + prox): the minimum of |w - target|^2 + prox |w - received|^2.
    """

    targets: Tensor  # (number of ids, P)
    rate: float = 1.0
    prox: float = 0.0
    model: Model = field(default_factory=toy_model)

    def __call__(
        self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
    ) -> Tensor:
        return theta + self.rate / (1 + self.prox) * (
            self.targets[fed.ids[clients]].to(theta) - theta
        )


@dataclass(frozen=True, eq=False)
class Add:
    """Client `id` adds steps[id] to whatever it received."""

    steps: Tensor  # (number of ids, P)
    model: Model = field(default_factory=toy_model)

    def __call__(
        self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
    ) -> Tensor:
        return theta + self.steps[fed.ids[clients]].to(theta)


def toy_federation(
    sizes: list[int] | int = 4, group: list[int] | None = None, ids: list[int] | None = None
) -> Federation:
    """Clients with these many training samples (an int: so many clients with 2 each), 2 test
    samples, one pixel.
    """
    sizes = [2] * sizes if isinstance(sizes, int) else sizes
    ids = list(range(len(sizes))) if ids is None else ids

    def half(name: str, n: int, i: int) -> tuple[Tensor, Tensor]:
        g = stream(0, "toy", name, i)
        return torch.randn(n, 1, 1, 1, generator=g), torch.randint(2, (n,), generator=g)

    halves = {
        name: [half(name, n if name == "train" else 2, i) for n, i in zip(sizes, ids, strict=True)]
        for name in ("train", "test", "val")
    }
    group = [0] * len(sizes) if group is None else group
    return Federation.stack(halves, group=torch.tensor(group), classes=2, ids=torch.tensor(ids))


def easy_federation(
    groups: int, per_group: int, seed: int, *, samples: int = 40, skew: bool = False
) -> Federation:
    """Well separated groups: 4 blobs of 4 x 4 pixels. Groups name the blobs differently (shifted
    labels), or, with
    `skew`, hold one blob each. Train, val and test halves alike; client i is in group i %
    groups."""
    centres = 2 * torch.randn(4, 1, 4, 4, generator=stream(seed, "centres"))
    n = groups * per_group

    def half(name: str, i: int) -> tuple[Tensor, Tensor]:
        g = stream(seed, "easy", name, i)
        blob = (
            torch.full((samples,), i % groups)
            if skew
            else torch.randint(4, (samples,), generator=g)
        )
        x = centres[blob] + 0.5 * torch.randn(samples, 1, 4, 4, generator=g)
        return x, blob if skew else (blob + i % groups) % 4

    halves = {name: [half(name, i) for i in range(n)] for name in ("train", "test", "val")}
    return Federation.stack(halves, group=torch.arange(n) % groups, classes=4)


def permuted(fed: Federation, order: Tensor) -> Federation:
    """The same clients in another order."""
    return fed.take(order)


def regrouped(fed: Federation) -> Federation:
    """The same federation with the truth scrambled: nothing but scores may change."""
    return replace(fed, group=torch.arange(len(fed)) // 2)
