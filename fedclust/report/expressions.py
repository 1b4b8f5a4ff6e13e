"""The expressions of a claim's tests: arithmetic on measures, one value per seed, and nothing else.

A paper's file is data. So an expression is read by this small grammar and never handed to an
interpreter: names of measures, numbers, + - * /, ** with a number from -8 to 8, one comparison
(1 where it holds, else 0), and the functions below.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

LONGEST = 300  # characters
HIGHEST = 8  # power
SIGNS: dict[type, Any] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
ARITHMETIC: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
COMPARISONS: dict[type, Any] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
OF_ONE: dict[str, Any] = {"abs": np.abs, "log": np.log, "sqrt": np.sqrt}
OF_SEVERAL: dict[str, Any] = {"min": np.min, "max": np.max, "mean": np.mean}  # seed by seed


class ExpressionError(ValueError):
    """An expression is outside the grammar; the message names the part."""


def parse(text: Any) -> list[str]:
    """The measures that an expression names, in order; an error if it is outside the grammar.

    >>> parse("max(a, b) - 2 * c")
    ['a', 'b', 'c']
    """
    found: dict[str, None] = {}
    calculate(text, lambda name: found.setdefault(name) or np.ones(1))
    if not found:
        raise ExpressionError("it names no measure")
    return list(found)


def evaluate(text: str, measures: pd.DataFrame) -> pd.Series:
    """The expression's value per seed: `measures` has a row per seed and a column per measure."""

    def measure(name: str) -> np.ndarray:
        if name not in measures:
            have = ", ".join(map(str, measures.columns)) or "none"
            raise ExpressionError(f"{name[:60]} is not measured; measures: {have}")
        return measures[name].to_numpy(dtype=float)

    value = np.broadcast_to(calculate(text, measure), len(measures))
    return pd.Series(value, measures.index, dtype=float)


def calculate(text: Any, measure: Callable[[str], np.ndarray]) -> Any:
    if not isinstance(text, str):
        raise ExpressionError(f"{str(text)[:60]} must be a string like 'a - b'")
    if len(text) > LONGEST:
        raise ExpressionError(f"it has {len(text)} characters, allowed are {LONGEST}")
    text = text.strip()
    try:
        body = ast.parse(text, mode="eval").body
        with np.errstate(all="ignore"):  # 0 / 0 is unknown (nan), not an error
            return value(body, measure, text)
    except (SyntaxError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or "it cannot be read"
        raise ExpressionError(f"{reason}; write arithmetic like 'a - b'") from error


def number(node: ast.expr) -> float:
    """A number with its sign; nan if it is something else."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return -number(part)
        case ast.Constant(value=bool()):
            return np.nan
        case ast.Constant(value=int() | float() as known):
            return float(known) if abs(known) < 1e300 else np.inf
    return np.nan


def value(node: ast.expr, measure: Callable[[str], np.ndarray], text: str) -> Any:
    """A part's value; an error for whatever the grammar does not have."""

    def of(part: ast.expr) -> Any:
        return value(part, measure, text)

    match node:
        case ast.Name(id=name) if name not in OF_ONE | OF_SEVERAL:
            return measure(name)
        case ast.Constant() if abs(number(node)) < 1e300:
            return np.float64(number(node))
        case ast.UnaryOp(op=sign, operand=part) if type(sign) in SIGNS:
            return SIGNS[type(sign)](of(part))
        case ast.BinOp(left=base, op=ast.Pow(), right=power):
            if abs(number(power)) <= HIGHEST:
                return of(base) ** number(power)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC:
            return ARITHMETIC[type(sign)](of(left), of(right))
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in COMPARISONS:
            one, other = of(left), of(right)
            holds = COMPARISONS[type(sign)](one, other)
            return np.where(np.isnan(one) | np.isnan(other), np.nan, holds)
        case ast.Call(func=ast.Name(id=name), args=[part], keywords=[]) if name in OF_ONE:
            return OF_ONE[name](of(part))
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as parts, keywords=[]):
            if name in OF_SEVERAL:
                return OF_SEVERAL[name](np.broadcast_arrays(*map(of, parts)), axis=0)
    wrong = ast.get_source_segment(text, node) or type(node).__name__
    raise ExpressionError(
        f"{wrong[:60]!r} is not allowed; use measures, numbers, + - * /, ** up to {HIGHEST}, "
        f"one comparison, {', '.join(OF_ONE)} of one and {', '.join(OF_SEVERAL)} of several"
    )
