"""What happens to a federation while it trains: clients join, a client's data drift.

An event has a round `at`. It turns the federation of the round before into that of this round.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from fedclust.checks import Count, Number, check_fields, checked, require
from fedclust.federation import Federation
from fedclust.rng import stream
from fedclust.rotation import turn


@dataclass(frozen=True)
class Join:
    """From round `at` on the newcomers follow the clients that were there."""

    at: Number
    newcomers: Federation

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, fed: Federation, seed: int) -> Federation:
        return fed.join(self.newcomers)


@dataclass(frozen=True)
class Drift:
    """From round `at` on one client's images have a new angle in U[0, 360).

    `client` is an id; None takes one at random.
    """

    at: Number
    client: Number | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, fed: Federation, seed: int) -> Federation:
        draw, ids = stream(seed, "drift", self.at), fed.ids.tolist()
        if fed.upright is None or fed.angle is None or fed.black is None:
            raise ValueError("drift needs upright images: use dirichlet_rotated(rotate=True)")
        require(
            self.client is None or self.client in ids,
            f"client={self.client} is not there in round {self.at}: drift one of {ids}, or None",
        )
        angle = torch.rand(1, generator=draw) * 360
        drawn = int(torch.randint(len(ids), (), generator=draw))
        i = drawn if self.client is None else ids.index(self.client)
        new: dict[str, Any] = {"angle": fed.angle.index_fill(0, torch.tensor(i), float(angle))}
        for half, end in (("train", ""), ("test", "_test")):
            x, _, mask = fed.half(half)
            images, upright, real = x.clone(), getattr(fed, "upright" + end), mask[i]
            images[i][real] = turn(upright[None, i, real], angle, fed.black[None, i])[0]
            new["x" + end] = images
        return replace(fed, **new)


@checked
def staggered(
    fed: Federation, start: Count, every: Count, rounds: Count
) -> tuple[Federation, list[Join]]:
    """The first `start` clients, and the joining of one more every `every` rounds.

    >>> import fedclust as fc
    >>> fed = fc.partition.iid(fc.datasets.load("glyphs", n=100, n_test=20), clients=5)
    >>> few, events = staggered(fed, start=3, every=10, rounds=30)
    >>> len(few), [(event.at, event.newcomers.ids.tolist()) for event in events]
    (3, [(10, [3]), (20, [4])])
    """
    at = range(every, rounds, every)
    needed = start + len(at)
    require(
        needed <= len(fed),
        f"start={start} and one newcomer every {every} of {rounds} rounds need {needed} clients, "
        f"and there are {len(fed)}: partition for more clients",
    )
    return fed.take(range(start)), [Join(t, fed.take([start + i])) for i, t in enumerate(at)]


@checked
def drifts(start: Number, every: Count, rounds: Count) -> list[Drift]:
    """One random client every `every` rounds from round `start` on."""
    return [Drift(t) for t in range(start, rounds, every)]
