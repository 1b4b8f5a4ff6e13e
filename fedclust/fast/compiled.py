"""How the compiled parts are compiled. What Numba has made it keeps beside the file until something in this folder
changes: by itself it would look at the function's own file only, and go on with old copies of what that calls."""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import torch
from numba.core.cpu import CPUContext

# New arrays begin with a line of the cache, so that no vector lies across two: products take a tenth less time than
# with Numba's own 32 bytes.
CPUContext.get_preferred_array_alignment = lambda context, kind: 64  # type: ignore[method-assign]

HERE = Path(__file__).parent
STAMP = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.glob("*.py")))).hexdigest()
SUMS = frozenset({"reassoc", "contract", "nsz"})  # liberties with sums, none with infinities


def compiled(function: Callable | None = None, fastmath: frozenset[str] = SUMS) -> Any:
    if function is None:
        return lambda function: compiled(function, fastmath)
    keep = os.access(HERE, os.W_OK)
    made: Any = numba.njit(function, nogil=True, error_model="numpy", fastmath=set(fastmath), cache=keep)
    if keep:
        made._cache._cache_file._source_stamp = STAMP
    return made


def on_threads(work: Callable[..., None], *arguments: Any) -> None:
    """Compiled work on each of these, as in `map`, on as many threads as PyTorch has."""
    threads = min(torch.get_num_threads(), len(arguments[0]))
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, *arguments))
    else:
        list(map(work, *arguments))
