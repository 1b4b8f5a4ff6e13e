"""Draws of readings: even, stable when more are asked for, stable when a value is added."""

from collections import Counter

import pytest

from fedclust.experiments.draws import draws, places

LONG = {"loss": ["mean", "sum"], "rate": [0.1, 0.03, 0.01], "width": [8, 16, 32, 64]}


@pytest.mark.parametrize("count", [16, 32, 64, 128])
@pytest.mark.parametrize("values", [2, 3, 4, 5])
def test_every_reading_is_drawn_evenly(values, count):
    for name in LONG:
        taken = Counter(places(name, values, count))
        assert sum(taken.values()) == count
        for place in range(values):
            assert abs(taken[place] - count / values) <= 3, (name, taken)


def test_every_draw_has_a_value_of_each_setting():
    assert all(draw.keys() == LONG.keys() for draw in draws(LONG, 5))
    assert all(draw[name] in LONG[name] for draw in draws(LONG, 64) for name in LONG)


def test_more_draws_keep_those_before():
    assert draws(LONG, 64)[:10] == draws(LONG, 10)


def test_a_reading_that_is_added_changes_no_draw_that_does_not_take_it():
    before, after = draws(LONG, 64), draws({**LONG, "loss": ["mean", "sum", "median"]}, 64)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert all(new["loss"] == "median" for new in moved)
    assert 18 <= len(moved) <= 24  # a third
    left = Counter(old["loss"] for old, new in zip(before, after, strict=True) if old != new)
    assert abs(left["mean"] - left["sum"]) <= 4  # taken evenly from both


def test_a_setting_that_is_added_keeps_the_values_of_the_others():
    after = draws({"new": [1, 2], **LONG}, 64)
    assert [{name: draw[name] for name in LONG} for draw in after] == draws(LONG, 64)


def test_settings_are_drawn_independently():
    a, b = (places(name, 2, 512) for name in ("one", "another"))
    both = Counter(zip(a, b, strict=True))
    assert all(abs(number - 128) < 40 for number in both.values())
