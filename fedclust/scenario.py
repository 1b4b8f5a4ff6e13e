"""What happens to a federation while it trains: clients join, a client's data drift.

An event has a round `at` and turns the federation before that round into the one of that round.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from fedclust.federation import Federation
from fedclust.partition import turn
from fedclust.rng import stream


@dataclass(frozen=True)
class Join:
    """The newcomers stand behind the others from round `at` on."""

    at: int
    newcomers: Federation

    def __call__(self, fed: Federation, seed: int) -> Federation:
        return fed.join(self.newcomers)


@dataclass(frozen=True)
class Drift:
    """From round `at` on the images of one client (an id; None: one at random) have a new angle in U[0, 360)."""

    at: int
    client: int | None = None

    def __call__(self, fed: Federation, seed: int) -> Federation:
        if fed.upright is None or fed.upright_test is None or fed.angle is None or fed.black is None:
            raise ValueError("drift needs the upright images: make the federation with dirichlet_rotated(rotate=True)")
        draw, ids = stream(seed, "drift", self.at), fed.ids.tolist()
        if self.client is not None and self.client not in ids:
            raise ValueError(f"client={self.client} is not there in round {self.at}: drift one of {ids}, or None")
        angle = torch.rand(1, generator=draw) * 360
        who = int(torch.randint(len(ids), (), generator=draw)) if self.client is None else ids.index(self.client)
        new: dict[str, Any] = {"angle": fed.angle.index_fill(0, torch.tensor(who), float(angle))}
        for name, images, upright in (("x", fed.x, fed.upright), ("x_test", fed.x_test, fed.upright_test)):
            mask = fed.mask if name == "x" else fed.mask_test
            new[name] = images.clone()
            new[name][who][mask[who]] = turn(upright[None, who, mask[who]], angle, fed.black[None, who])[0]
        return replace(fed, **new)


def staggered(fed: Federation, start: int, every: int, rounds: int) -> tuple[Federation, list[Join]]:
    """The first `start` clients, and one more joining every `every` rounds as long as `rounds` last.

    >>> import fedclust as fc
    >>> fed = fc.partition.iid(fc.datasets.load("glyphs", n=100, n_test=20), clients=5)
    >>> few, events = staggered(fed, start=3, every=10, rounds=30)
    >>> len(few), [(event.at, event.newcomers.ids.tolist()) for event in events]
    (3, [(10, [3]), (20, [4])])
    """
    at = range(every, rounds, every)
    if start < 1 or start + len(at) > len(fed):
        raise ValueError(
            f"start={start} and {len(at)} newcomers (one every {every} of {rounds} rounds) need {start + len(at)} "
            f"clients, and there are {len(fed)}: partition for as many, and start with at least one"
        )
    return fed.take(range(start)), [Join(t, fed.take([start + i])) for i, t in enumerate(at)]


def drifts(start: int, every: int, rounds: int) -> list[Drift]:
    """One random client every `every` rounds from round `start` on."""
    return [Drift(t) for t in range(start, rounds, every)]
