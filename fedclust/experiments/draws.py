"""Draws of readings: a Latin hypercube over open values that can grow.

Each draw takes one value of every open setting, and all values are taken about equally often. A
draw stays what it is when more draws are asked for. A value added at the end of a setting's list
takes its share evenly from the draws of the values before it: all other draws keep what they have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedclust.rng import numpy_stream

Draw = dict[str, Any]


def draws(values: Mapping[str, Sequence[Any]], count: int) -> list[Draw]:
    """`count` draws, each with one of its values for every setting.

    >>> [draw["loss"] for draw in draws({"loss": ["mean", "sum"]}, 16)].count("sum")
    8
    """
    columns = {
        name: [given[i] for i in places(name, len(given), count)] for name, given in values.items()
    }
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def places(name: str, values: int, count: int) -> list[int]:
    """Which of its values a setting has in each draw: a place in its list.

    Value after value enters: going through the draws, it takes the place of an older value by lot,
    but at once where it lags behind that one by two draws, and not where it leads by two.
    """
    taken = [0] * count
    for new in range(1, values):
        lots = numpy_stream(0, "readings", name, new).random(count)
        often = [0] * (new + 1)
        for i, old in enumerate(taken):
            gap = often[old] - often[new]
            taken[i] = new if gap >= 2 or (gap > -2 and lots[i] < 0.5) else old
            often[taken[i]] += 1
    return taken
