"""Checks of what users give: one line with the name, the value and what is allowed."""

from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

LONGEST = 60  # letters of a value in an error


def require(fulfilled: Any, text: str) -> None:
    if not fulfilled:
        raise ValueError(text)


def number(interval: str, **given: Any) -> None:
    """Each value is a number in the interval, and not nan.

    >>> number("(0, 1]", fraction=0.5)
    >>> number("[0, inf)", mu=float("nan"))
    Traceback (most recent call last):
        ...
    ValueError: mu=nan: must be a number in [0, inf)
    """
    for name, value in given.items():
        fits = isinstance(value, Real) and not isinstance(value, bool) and within(value, interval)
        require(fits, f"{name}={shown(value)}: must be a number in {interval}")


def whole(interval: str, **given: Any) -> None:
    """Each value is a whole number in the interval."""
    for name, value in given.items():
        fits = isinstance(value, Integral) and not isinstance(value, bool)
        require(
            fits and within(value, interval),
            f"{name}={shown(value)}: must be a whole number in {interval}",
        )


def true_or_false(**given: Any) -> None:
    for name, value in given.items():
        require(isinstance(value, bool), f"{name}={shown(value)}: must be true or false")


def one_of(allowed: Collection[Any], **given: Any) -> None:
    """Each value is one of those allowed."""
    for name, value in given.items():
        known = isinstance(value, str | None) and value in allowed
        choices = ", ".join(map(repr, allowed))
        require(known, f"{name}={shown(value)}: must be one of {choices}")


def within(value: Any, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value > low or (interval[0] == "[" and value == low)
    return above and (value < high or (interval[-1] == "]" and value == high))


def shown(value: Any) -> str:
    """A value for an error: its beginning, if it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."
