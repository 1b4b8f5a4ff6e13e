"""What users give is checked: one line, with the name, the value and what is allowed."""

import math

import numpy as np
import pytest

from fedclust import checks


@pytest.mark.parametrize("value", [1e-9, 1, 1.0, np.float32(0.5), np.int64(1)])
def test_numbers_in_the_interval_pass(value):
    checks.number("(0, 1]", share=value)


WRONG = [0, -1, 1.1, math.nan, math.inf, True, "0.5", None, [1], "x" * 999]


@pytest.mark.parametrize("value", WRONG)
def test_all_else_is_one_line(value):
    with pytest.raises(ValueError, match=r"^share=.*: must be a number in \(0, 1\]$") as caught:
        checks.number("(0, 1]", share=value)
    assert len(str(caught.value)) < 120


def test_ends_of_intervals():
    checks.number("(0, inf]", epsilon=math.inf)
    with pytest.raises(ValueError, match="epsilon=inf"):
        checks.number("(0, inf)", epsilon=math.inf)


@pytest.mark.parametrize("value", [0, 1.5, 1.0, True, math.nan, "1", None])
def test_whole_numbers(value):
    checks.whole("[1, inf)", rounds=np.int64(3))
    with pytest.raises(ValueError, match=r"^rounds=.*: must be a whole number in \[1, inf\)$"):
        checks.whole("[1, inf)", rounds=value)


@pytest.mark.parametrize("value", ["median", [], {}, 3, ["mean"]])
def test_choices(value):
    checks.one_of(("sum", None), loss=None)
    with pytest.raises(ValueError, match=r"^loss=.*: must be one of 'sum', 'mean'$"):
        checks.one_of(("sum", "mean"), loss=value)
