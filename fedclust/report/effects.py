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

A [[control]] has id, label, expr, paper (the printed level) and chance (default 0) or horizon.
"""

import ast
import math
from typing import Any

import numpy as np
import pandas as pd

from fedclust.report.expressions import evaluate

KINDS = ("effect", "bound", "ratio", "arrivals", "count")
BOUNDS = ("at_least", "at_most")


class RuleError(ValueError):
    """A test cannot be judged as it is written; the message says why."""


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
    neither = np.mean(np.isnan(a) & np.isnan(b))  # if hardly any arrives, nothing is compared
    ratio = (ended(test, a, measures) / ended(test, b, measures)).to_numpy()
    return turn(test, ratio * (math.nan if neither > 0.5 else 1.0))


def ended(entry: dict[str, Any], x: pd.Series, measures: pd.DataFrame) -> pd.Series:
    """Arrivals, where a run that never arrives has its last iteration."""
    end = entry.get("horizon", math.nan)
    ends = evaluate(end, measures) if isinstance(end, str) else float(end)
    return pd.Series(np.fmin(x, ends))
