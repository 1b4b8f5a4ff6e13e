"""Expressions of claims: what they may say, what they give, and that nothing else takes effect."""

import math
import time

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust.report import expressions
from fedclust.report.expressions import ExpressionError

MEASURES = pd.DataFrame({"a": [1.0, 4.0], "b": [2.0, 0.0], "c": [3.0, math.nan]}, index=[7, 9])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a - b", [-1, 4]),
        ("a + 2 * b / 4", [2, 4]),
        ("-a ** 2", [-1, -16]),
        ("a ** -1", [1, 0.25]),
        ("a ** 0.5 + sqrt(a)", [2, 4]),
        ("abs(a - b)", [1, 4]),
        ("log(a)", [0, math.log(4)]),
        ("min(a, b, 1.5)", [1, 0]),
        ("max(a, b)", [2, 4]),
        ("mean(a, b)", [1.5, 2]),
        ("a > b", [0, 1]),
        ("c >= 3", [1, math.nan]),  # nothing is known of what was not measured
        ("a / b", [0.5, math.inf]),
    ],
)
def test_values_by_hand(text, expected):
    found = expressions.evaluate(text, MEASURES)
    assert list(found.index) == [7, 9]
    assert found.tolist() == pytest.approx(expected, nan_ok=True)


def test_names_are_those_of_measures_in_reading_order():
    assert expressions.parse("max(late, early) - late / mean(x1, 2)") == ["late", "early", "x1"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("@pd.io.common.os.system('touch /tmp/x')", "invalid syntax"),
        ("acc.to_csv('x')", "acc.to_csv"),
        ("__import__('os')", "__import__"),
        ("(1).__class__", "__class__"),
        ("a[0]", "a[0]"),
        ("[x for x in a]", "[x for x in a]"),
        ("lambda: a", "lambda"),
        ("a if b else c", "a if b else c"),
        ("a and b", "a and b"),
        ("a < b < c", "a < b < c"),
        ("a % b", "a % b"),
        ("a // b", "a // b"),
        ("~a", "~a"),
        ("a ** b", "a ** b"),
        ("a ** -b", "a ** -b"),
        ("a ** True", "a ** True"),
        ("9 ** 9 ** 9 ** 9", "9 ** 9 ** 9"),
        ("a ** 9", "a ** 9"),
        ("a + True", "True"),
        ("a + 'b'", "'b'"),
        ("a + 1j", "1j"),
        ("a + 1e999", "1e999"),
        ("a + max", "max"),
        ("max(a)", "max(a)"),
        ("sqrt(a, b)", "sqrt(a, b)"),
        ("max(a, key=b)", "max(a, key=b)"),
        ("max(*a)", "max(*a)"),
        ("a := 3", "invalid syntax"),
        ("a = 3", "invalid syntax"),
        ("", "invalid syntax"),
        ("a\nb", "invalid syntax"),
        ("5", "names no measure"),
        ("a" * 500, "characters"),
        ("(" * 140 + "a" + ")" * 140, ""),
        ("-" * 299 + "a", ""),
        ("a\0", ""),
        (5, "must be a string"),
        (None, "must be a string"),
        ([], "must be a string"),
    ],
)
def test_everything_else_is_refused_at_once(text, part):
    started = time.monotonic()
    try:
        expressions.parse(text)
    except ExpressionError as error:
        assert part in str(error)
        assert len(str(error)) <= 300
        assert "\n" not in str(error)
    else:
        assert part == ""  # deep but harmless
    assert time.monotonic() - started < 1


def test_what_is_not_measured_is_named():
    with pytest.raises(ExpressionError, match="d is not measured; measures: a, b, c"):
        expressions.evaluate("a - d", MEASURES)


@given(st.text(max_size=60) | st.text("ab+-*/<>=()., 0123456789e@[]", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_numbers_or_one_kind_of_error(text):
    try:
        expressions.evaluate(text, MEASURES)
    except ExpressionError as error:
        assert len(str(error)) <= 300
