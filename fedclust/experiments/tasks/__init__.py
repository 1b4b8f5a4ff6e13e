"""What a trial can be: `train`, and each paper's own measurements in the file named by the paper.

A task takes ``(settings, seed, progress)`` and returns a tidy record. It calls
``progress(done, rounds)`` after every round. A task that can be resumed also takes a `checkpoint`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

import pandas as pd

Task = Callable[..., pd.DataFrame]


@cache
def catalogue() -> dict[str, Task]:
    """The tasks by name: all that the files of this folder list in `__all__`."""
    found: dict[str, Task] = {}
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        found |= {name: getattr(module, name) for name in module.__all__}
    return found


def find(name: str) -> Task:
    if name not in catalogue():
        raise ValueError(f"task {name!r} is not known: there are {', '.join(sorted(catalogue()))}")
    return catalogue()[name]
