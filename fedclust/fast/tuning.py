"""Private parts of other libraries, all of them: what each brings, and what happens without it.

Whatever is missing in another version of a library is left out, at the cost that is given here.
"""

import ctypes
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TRIM, MAP, MAPS = -1, -3, -4  # mallopt's M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_MMAP_MAX


def align_arrays() -> None:
    """New arrays of compiled code begin with a line of the cache, so that no vector lies across
    two.

    Without it they begin at Numba's 32 bytes, and products take a tenth more time.
    """
    with suppress(ImportError):
        from numba.core.cpu import CPUContext

        CPUContext.get_preferred_array_alignment = lambda context, kind: 64  # type: ignore


def stamp() -> str:
    """A hash of the files of this folder that have something to compile."""
    code = [path.read_bytes() for path in sorted(HERE.glob("*.py"))]
    return hashlib.sha256(
        b"".join(c for c in code if b"numba" in c or b"@compiled" in c)
    ).hexdigest()


def keep_compiled(made: Any, stamp: str) -> None:
    """What Numba keeps of a function is good until something in this folder changes.

    Without it Numba looks at the function's own file only, and goes on with old copies of what that
    calls: wrong results after an edit. The other way is to keep nothing: 40 s for each process.
    """
    made._cache._cache_file._source_stamp = stamp


def keep_freed_memory(large: bool = False) -> None:
    """Memory that one round frees is kept for the next; blocks of all sizes, if `large`.

    Without it the C library gives it back, and getting its pages again takes a tenth of the time.
    """
    with suppress(AttributeError, OSError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(TRIM, 2**31 - 1)
        library.mallopt(MAP, 2**25)
        if large:
            library.mallopt(MAPS, 0)  # no block is so large that it goes back
