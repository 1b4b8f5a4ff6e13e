"""Checks of what users give: one line with the name, the value and what is allowed.

Most are written as types: `check_fields` reads those of a dataclass, `checked` those of a function.
"""

from collections.abc import Callable, Collection, Hashable
from dataclasses import fields
from functools import cache, wraps
from inspect import signature
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedclust.paths import short

Function = TypeVar("Function", bound=Callable[..., Any])

Share = Annotated[float, "(0, 1]"]
Open = Annotated[float, "(0, 1)"]
Positive = Annotated[float, "(0, inf)"]
NotNegative = Annotated[float, "[0, inf)"]
Count = Annotated[int, "[1, inf)"]
Whole = Annotated[int, "(-inf, inf)"]
Number = Annotated[int, "[0, inf)"]  # of something that may be missing, or of a round


def check_fields(thing: Any) -> None:
    """Each field of a dataclass has a value that its type allows."""
    kinds = types(type(thing))  # type: ignore[arg-type]
    for field in fields(thing):
        check(kinds[field.name], field.name, getattr(thing, field.name))


def checked(function: Function) -> Function:
    """The function, which checks its arguments by their types first."""

    @wraps(function)
    def checking(*given: Any, **named: Any) -> Any:
        for name, value in signature(function).bind(*given, **named).arguments.items():
            check(types(function).get(name), name, value)
        return function(*given, **named)

    return checking  # type: ignore[return-value]


@cache
def types(thing: Hashable) -> dict[str, Any]:
    return get_type_hints(thing, include_extras=True)


def check(kind: Any, name: str, value: Any) -> None:
    """Annotated numbers, choices (Literal), true or false; any of them or None. All else passes."""
    if get_origin(kind) in (Union, UnionType) and value is not None:
        for one in get_args(kind):
            check(one, name, value)
    elif kind is bool:
        true_or_false(**{name: value})
    elif get_origin(kind) is Literal:
        one_of(get_args(kind), **{name: value})
    elif get_origin(kind) is Annotated:
        of, interval = get_args(kind)
        (whole if of is int else number)(interval, **{name: value})


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
        require(fits, f"{name}={short(value)}: must be a number in {interval}")


def whole(interval: str, **given: Any) -> None:
    """Each value is a whole number in the interval."""
    for name, value in given.items():
        fits = isinstance(value, Integral) and not isinstance(value, bool)
        fits = fits and within(value, interval)
        require(fits, f"{name}={short(value)}: must be a whole number in {interval}")


def true_or_false(**given: Any) -> None:
    for name, value in given.items():
        require(isinstance(value, bool), f"{name}={short(value)}: must be true or false")


def one_of(allowed: Collection[Any], **given: Any) -> None:
    for name, value in given.items():
        known = isinstance(value, str | None) and value in allowed
        require(known, f"{name}={short(value)}: must be one of {', '.join(map(repr, allowed))}")


def within(value: Any, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value > low or (interval[0] == "[" and value == low)
    return above and (value < high or (interval[-1] == "]" and value == high))


def has_device(name: str) -> bool:
    """Whether this machine has a device; the processor is always there."""
    if name == "cpu":
        return True
    import torch  # here, because a paper's file is read sooner without it

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return found.get(name, False)
