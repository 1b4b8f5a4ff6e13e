"""A claim's test as a [[claim.test]] of papers/<key>.toml has it, and the effect that it measures.

    label            the effect, for people: "CAFA minus FedAvg, last fifth"
    expr             arithmetic on measures, one value per seed; arrivals are written as "a / b"
    kind             effect (default; bound, where a bound is given), ratio, arrivals or count
    above, below     where "no effect" is, and the claimed side; above = 0 if neither is given,
                     for ratios and arrivals above = 1
    at_least, at_most  a bound in place of a side, or two
    paper            the printed size, in the units of `expr`
    least, reason    where no size is printed: the smallest that counts, as a distance (of ratios: a
                     ratio), and why; for a bound the distance from it that counts
    horizon          arrivals: a measure or number, the end of a run that never arrives (nan)
    range            the [lowest, highest] value that `expr` can have
    tried            it is the best of so many alternatives
    exact            true: no sampling in it; it holds on every seed or does not hold
    possible         an expression: the largest size for which the baseline leaves room
    control          ids of [[control]] that replace the claim's
    beside           true: shown, but not counted

A [[control]] has id, label, expr, where, and the printed level as `paper` (with `chance`, default
0) or a smallest one as `at_least`; arrivals have a horizon. A claim says `uncontrolled` and why, if
nothing is trained. `ours`: a question of ours, not counted. `unseen`: the tiers that cannot see it,
with the reason. [[claim.changed]]: a rule that was mended. [[left_out]]: what is no claim, and why.
[[seeds_planned]]: how many seeds a tier has, set from the spread of a pilot (plan.py).
"""

import ast
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from fedclust.report.expressions import ExpressionError, evaluate, parse

KINDS = ("effect", "bound", "ratio", "arrivals", "count")
BOUNDS, NUMBERS = ("at_least", "at_most"), ("above", "below", "paper", "least", "tried")
KEYS: dict[str, tuple[set[str], set[str]]] = {  # section: (needed, also allowed)
    "control": (
        {"id", "label", "expr", "where"},
        {"paper", "chance", "at_least", "horizon", "note"},
    ),
    "left_out": ({"id", "text", "where", "figure", "reason"}, set()),
    "seeds_planned": ({"tier", "number", "cap", "date", "reason"}, set()),
    "claim": (
        {"id", "short", "text", "where", "figure", "test"},
        {"control", "uncontrolled", "note", "ours", "unseen", "changed", "because"},
    ),
    "changed": ({"date", "before", "reason"}, set()),
    "test": (
        {"label", "expr"},
        {"kind", "reason", "horizon", "range", "exact", "possible", "control", "beside"}
        | {*BOUNDS, *NUMBERS},
    ),
}


class RuleError(ValueError):
    """A test cannot be judged as it is written; the message says why."""


def check(test: dict[str, Any]) -> None:
    """An error if a test cannot be judged, before anything is trained for it."""
    for name in ("expr", "possible", "horizon"):
        if name == "expr" or isinstance(test.get(name), str):
            try:
                parse(test[name])
            except ExpressionError as error:
                raise RuleError(f"{name} {str(test[name])[:60]}: {error}") from error
    numbers(test, (*BOUNDS, *NUMBERS))
    ends = test.get("range", [0.0, 1.0])
    numbers(dict(enumerate(ends)), range(len(ends)))
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise RuleError(f"range = {str(ends)[:60]} must be two numbers, the lower one first")
    if kind_of(test) not in KINDS:
        raise RuleError(f"kind = {test['kind'][:60]!r} must be one of {', '.join(KINDS)}")
    if {"above", "below"} <= test.keys() or (is_bound(test) and {"above", "below"} & test.keys()):
        raise RuleError("it has one side, `above` or `below`, or bounds")
    if is_ratio(test) and {1.0} != {1.0, *(test[end] for end in ("above", "below") if end in test)}:
        raise RuleError("a ratio's point of no effect is 1")
    if ("least" in test) != ("reason" in test):
        raise RuleError("`least` comes with its `reason`")
    if (kind_of(test) == "arrivals") != ("horizon" in test):
        raise RuleError("`horizon` belongs to kind arrivals, which needs it")
    marks(test)


def check_control(control: dict[str, Any]) -> None:
    """An error if it cannot be said whether the baseline is where the paper's was."""
    parse(control["expr"])
    numbers(control, ("paper", "chance", "at_least"))
    if "paper" not in control and "at_least" not in control:
        raise RuleError("give the printed level as `paper`, or a smallest one as `at_least`")


def numbers(entry: dict[Any, Any], names: Iterable[Any]) -> None:
    """An error unless each of these keys, where it is there, is a finite number."""
    for name in names:
        value = entry.get(name, 0.0)
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not real or not abs(value) < 1e300:
            raise RuleError(f"{name} = {str(value)[:60]} must be a number")


def kind_of(test: dict[str, Any]) -> str:
    return str(test.get("kind", "bound" if is_bound(test) else "effect"))


def is_bound(test: dict[str, Any]) -> bool:
    return any(name in test for name in BOUNDS)


def is_ratio(test: dict[str, Any]) -> bool:
    return kind_of(test) in ("ratio", "arrivals")


def turn(test: dict[str, Any], value: Any) -> Any:
    """A value of `expr` as its distance from no effect to the claimed side; a bound's as it is."""
    if is_bound(test):
        return value
    if is_ratio(test):  # what is not positive has no logarithm, and the test stays open
        with np.errstate(all="ignore"):
            return (-1 if "below" in test else 1) * np.log(value)
    return test["below"] - value if "below" in test else value - test.get("above", 0.0)


def back(test: dict[str, Any], x: Any) -> Any:
    """What `turn` has turned, in the units of `expr` again, and within its range."""
    if not is_bound(test):
        if is_ratio(test):
            x = np.exp(-x if "below" in test else x)
        else:
            x = test["below"] - x if "below" in test else x + test.get("above", 0.0)
    return np.clip(x, *test.get("range", (None, None)))


def marks(test: dict[str, Any]) -> tuple[float | None, float]:
    """The printed size and h, turned. A bound's h only plans seeds: how near to it truth may be."""
    ends = [test[name] for name in BOUNDS if name in test]
    printed = float(turn(test, test["paper"])) if "paper" in test and not ends else None
    if "least" in test:
        half = abs(math.log(test["least"])) if is_ratio(test) else float(test["least"])
    elif ends:
        half = min(abs(test.get("paper", end) - end) for end in ends) or (ends[-1] - ends[0]) / 2
    elif is_ratio(test):
        half = float(turn(test, (1 + test.get("paper", 1.0)) / 2))  # 0.5 is printed: h is 0.75
    else:
        half = (printed or 0.0) / 2
    if not half > 0 and not test.get("exact") and kind_of(test) != "count":
        missing = "give `paper`, on the claimed side, or `least` with its reason"
        raise RuleError(f"{test['expr']!r} has no mark: {missing}")
    return printed, half


def values(test: dict[str, Any], measures: pd.DataFrame) -> Any:
    """One value per seed, turned; what was not measured is nan."""
    if kind_of(test) != "arrivals":
        return turn(test, evaluate(test["expr"], measures).to_numpy())
    node = ast.parse(test["expr"].strip(), mode="eval").body
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
        raise RuleError(f"{test['expr']!r}: arrivals are compared as 'a / b'")
    a, b = (evaluate(ast.unparse(side), measures) for side in (node.left, node.right))
    ratio = (ended(test, a, measures) / ended(test, b, measures)).to_numpy()
    run = ~np.isnan(ratio)  # a seed that was not run has no horizon either
    neither = np.mean((a.isna() & b.isna())[run]) if run.any() else 0.0
    return turn(test, ratio * (math.nan if neither > 0.5 else 1.0))  # nothing can be compared


def by_count(test: dict[str, Any], x: Any) -> bool:
    """Whether seeds are counted: all agree, or most are at the end of the scale."""
    if len(x) < 2 or kind_of(test) == "count":
        return kind_of(test) == "count"
    at_end = np.isin(back(test, x), test.get("range", ())).mean() > 0.5
    return bool(np.ptp(x) <= 1e-12 or at_end)


def ended(entry: dict[str, Any], x: pd.Series, measures: pd.DataFrame) -> pd.Series:
    """Arrivals, where a run that never arrives has its last iteration."""
    end = entry.get("horizon", math.nan)
    ends = evaluate(end, measures) if isinstance(end, str) else float(end)
    return pd.Series(np.fmin(x, ends))
