"""How the compiled parts are compiled: Numba keeps its results until something here changes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import torch

from fedclust.fast import tuning

tuning.align_arrays()
STAMP = tuning.stamp()
SUMS = frozenset({"reassoc", "contract", "nsz"})  # liberties with sums, none with infinities


def compiled(function: Callable | None = None, fastmath: frozenset[str] = SUMS) -> Any:
    if function is None:
        return lambda function: compiled(function, fastmath)
    made: Any = numba.njit(function, nogil=True, error_model="numpy", fastmath=set(fastmath))
    tuning.keep_compiled(made, STAMP)
    return made


def on_threads(work: Callable[..., None], *arguments: Any) -> None:
    """Compiled work on each of these, as in `map`, on as many threads as PyTorch has."""
    threads = min(torch.get_num_threads(), len(arguments[0]))
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, *arguments))
    else:
        list(map(work, *arguments))
