"""Trials that run side by side compute once what they have in common.

Methods that have not yet divided the clients serve them the same models, so their trainings and
scores are the same. A shared function recognises such work by the content of its arguments: what
comes back is what it would have computed. It remembers nothing outside of `side_by_side`.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from hashlib import sha1
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor

from fedclust.federation import Federation

Function = TypeVar("Function", bound=Callable[..., Any])
_thread = threading.local()
_federations: WeakKeyDictionary[Federation, Hashable] = WeakKeyDictionary()  # content, hashed once


class Results(OrderedDict[Hashable, Any]):
    """The last `size` results of shared functions."""

    def __init__(self, size: int):
        super().__init__()
        self.size, self.reused = size, 0


@contextmanager
def side_by_side(results: Results) -> Iterator[None]:
    """Shared functions called in this thread look into these results and add theirs."""
    _thread.results = results
    try:
        yield
    finally:
        del _thread.results


def shared(function: Function) -> Function:
    """Mark a pure function of tensors, federations and settings as worth sharing."""

    @wraps(function)
    def found_or_computed(*arguments: Any, **options: Any) -> Any:
        results = getattr(_thread, "results", None)
        if results is None:
            return function(*arguments, **options)
        key = (function.__qualname__, content(arguments), content(options))
        if key in results:
            results.move_to_end(key)
            results.reused += 1
        else:
            results[key] = function(*arguments, **options)
            if len(results) > results.size:
                results.popitem(last=False)
        return results[key]

    return found_or_computed  # type: ignore[return-value]


def content(thing: Any) -> Hashable:
    """Equal for what is equal in type and value. Unknown objects equal only themselves."""
    if isinstance(thing, Tensor):
        plain = thing.detach().cpu().contiguous()
        return str(plain.dtype), plain.shape, sha1(plain.numpy().data).digest()
    if isinstance(thing, Federation) and thing in _federations:
        return _federations[thing]
    if is_dataclass(thing):
        found = type(thing), *(content(getattr(thing, f.name)) for f in fields(thing))
        if isinstance(thing, Federation):
            _federations[thing] = found
        return found
    if isinstance(thing, partial):
        return thing.func, content(thing.args), content(thing.keywords)
    if isinstance(thing, dict):
        return tuple((name, content(value)) for name, value in thing.items())
    if isinstance(thing, (list, tuple)):
        return tuple(map(content, thing))
    return type(thing), thing
