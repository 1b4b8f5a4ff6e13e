"""What happens to a federation while it trains: clients join, and in DCFL's paper they drift.

An event has a round `at`. It turns the federation of the round before into that of this round.
"""

from dataclasses import dataclass

from fedclust.checks import Count, Number, check_fields, checked, require
from fedclust.federation import Federation
from fedclust.paths import from_parts

__getattr__, __dir__ = from_parts(__name__, {"Drift": "dcfl", "drifts": "dcfl"})


@dataclass(frozen=True)
class Join:
    """From round `at` on the newcomers follow the clients that were there."""

    at: Number
    newcomers: Federation

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, fed: Federation, seed: int) -> Federation:
        return fed.join(self.newcomers)


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
