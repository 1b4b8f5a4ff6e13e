"""The expressions of a claim's tests: arithmetic on measures, one value per seed, and nothing else.

A paper's file is data. So an expression is read by this small grammar and never handed to an
interpreter: names of measures, numbers, + - * /, ** with a number from -8 to 8, one comparison
(1 where it holds, else 0), and the functions below.
"""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

LONGEST = 300  # characters
HIGHEST = 8  # power
Operation = Callable[..., Any]
OPERATORS: dict[type, Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
OF_ONE: dict[str, Operation] = {"abs": np.abs, "log": np.log, "sqrt": np.sqrt}
OF_SEVERAL: dict[str, Operation] = {  # seed by seed, over the measures in the brackets
    "min": lambda *values: np.min(np.broadcast_arrays(*values), axis=0),
    "max": lambda *values: np.max(np.broadcast_arrays(*values), axis=0),
    "mean": lambda *values: np.mean(np.broadcast_arrays(*values), axis=0),
}
FUNCTIONS = OF_ONE | OF_SEVERAL


class ExpressionError(ValueError):
    """An expression is outside the grammar; the message names the part."""


def parse(text: Any) -> list[str]:
    """The measures that an expression names, in order; an error if it is outside the grammar.

    >>> parse("max(a, b) - 2 * c")
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(names(tree(text))))


def evaluate(text: str, measures: pd.DataFrame) -> pd.Series:
    """The expression's value per seed: `measures` has a row per seed and a column per measure."""
    body = tree(text)
    if missing := set(names(body)) - set(measures.columns):
        have = ", ".join(map(str, measures.columns)) or "none"
        raise ExpressionError(f"{', '.join(sorted(missing))} is not measured; measures: {have}")

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return measures[node.id].to_numpy(dtype=float)
        if isinstance(node, ast.Constant):
            return number(node)
        if isinstance(node, ast.Call):
            return FUNCTIONS[node.func.id](*map(value, node.args))  # type: ignore[attr-defined]
        if isinstance(node, ast.UnaryOp):
            return OPERATORS[type(node.op)](value(node.operand))
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        assert isinstance(node, ast.Compare)
        left, right = value(node.left), value(node.comparators[0])
        holds = OPERATORS[type(node.ops[0])](left, right)
        return np.where(np.isnan(left) | np.isnan(right), np.nan, holds)

    with np.errstate(all="ignore"):  # 0 / 0 is unknown (nan), not an error
        return pd.Series(np.broadcast_to(value(body), len(measures)), measures.index, dtype=float)


def tree(text: Any) -> ast.expr:
    """The expression's syntax tree, every node of which is in the grammar."""
    if not isinstance(text, str):
        raise ExpressionError(f"{text!r} must be a string like 'a - b'")
    if len(text) > LONGEST:
        raise ExpressionError(f"it has {len(text)} characters, allowed are {LONGEST}")
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or "it cannot be read"
        raise ExpressionError(f"{reason}; write arithmetic like 'a - b'") from error
    check(body, text)
    if not names(body):
        raise ExpressionError("it names no measure")
    return body


def check(node: ast.AST, text: str) -> None:
    """Refuse the first node that is not in the grammar."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Constant):
        allowed = abs(number(node)) < 1e300  # not so for nan, that is, for what is no number
    elif isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        count = len(node.args)
        allowed = not node.keywords and (
            count == 1 if name in OF_ONE else name in OF_SEVERAL and count > 1
        )
        parts = node.args
    elif isinstance(node, ast.UnaryOp):
        allowed, parts = type(node.op) in OPERATORS, [node.operand]
    elif isinstance(node, ast.BinOp):
        allowed, parts = type(node.op) in OPERATORS, [node.left, node.right]
        if isinstance(node.op, ast.Pow):
            allowed = abs(number(node.right)) <= HIGHEST
    elif isinstance(node, ast.Compare):
        allowed = len(node.ops) == 1 and type(node.ops[0]) in OPERATORS
        parts = [node.left, *node.comparators]
    else:
        allowed = isinstance(node, ast.Name) and node.id not in FUNCTIONS
    if not allowed:
        wrong = ast.get_source_segment(text.strip(), node) or type(node).__name__
        raise ExpressionError(
            f"{wrong[:60]!r} is not allowed; use measures, numbers, + - * /, ** up to {HIGHEST}, "
            f"one comparison, {', '.join(OF_ONE)} of one and {', '.join(OF_SEVERAL)} of several"
        )
    for part in parts:
        check(part, text)


def number(node: ast.AST) -> float:
    """The value of a number with its sign, else nan."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -number(node.operand)
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e300 else math.inf
    return math.nan


def names(body: ast.expr) -> list[str]:
    """The measures in reading order."""
    called = {id(node.func) for node in ast.walk(body) if isinstance(node, ast.Call)}
    found = [
        node for node in ast.walk(body) if isinstance(node, ast.Name) and id(node) not in called
    ]
    return [node.id for node in sorted(found, key=lambda node: (node.lineno, node.col_offset))]
