"""Private parts of other libraries, all of them: what each brings, and what happens without it.

Whatever is missing in another version of a library is left out, at the cost that is given here.
"""

import ctypes
import hashlib
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DIGEST = hashlib.sha256().digest_size
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
    """Keep what Numba makes of a function beside its file, until something in this folder changes.

    Numba's own way to keep it looks at the function's file only, and goes on with old copies of
    what that calls: wrong results after an edit. It ends with a bare error at a damaged file, and
    where it cannot write it does not read either. To keep nothing costs 40 s for each process.
    """
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
    from numba.core.caching import InTreeCacheLocator as Beside
    from numba.core.caching import UserWideCacheLocator as AtHome

    class BesideAsItIs(Beside):
        def ensure_cache_path(self) -> None:
            os.makedirs(self.get_cache_path(), exist_ok=True)  # need not be writable

    class Place(CompileResultCacheImpl):
        _locator_classes = [BesideAsItIs, AtHome]  # noqa: RUF012

    class Files(IndexDataCacheFile):
        """Files that begin with their hash. A damaged one counts as none, and is made again."""

        def _load_index(self) -> dict:
            try:
                return super()._load_index()
            except Exception:  # whatever unpickling makes of it
                return {}

        def _load_data(self, name: str) -> Any:
            content = Path(self._data_path(name)).read_bytes()
            if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
                raise OSError(f"{name} is damaged")  # as if it were not there
            return pickle.loads(content[DIGEST:])

        def _save_data(self, name: str, data: Any) -> None:
            content = self._dump(data)
            with self._open_for_write(self._data_path(name)) as file:
                file.write(hashlib.sha256(content).digest() + content)

        def save(self, key: Any, data: Any) -> None:
            with suppress(OSError):  # a full disk, or a checkout that nobody may change
                super().save(key, data)

    class Cache(FunctionCache):
        _impl_class = Place

    with suppress(RuntimeError):  # there is no place at all
        made._cache = Cache(made.py_func)
        there, name = made._cache._cache_path, made._cache._impl.filename_base
        made._cache._cache_file = Files(there, name, stamp)


def keep_freed_memory(large: bool = False) -> None:
    """Memory that one round frees is kept for the next; blocks of all sizes, if `large`.

    Without it the C library gives it back, and getting its pages again takes a sixth of the time
    that perceptrons train, and a fiftieth with convolutional networks.
    """
    with suppress(AttributeError, OSError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(TRIM, 2**31 - 1)
        library.mallopt(MAP, 2**25)
        if large:
            library.mallopt(MAPS, 0)  # no block is so large that it goes back


def keep_workers() -> None:
    """A worker of a sweep may grow by 8 GB before loky replaces it by a new one.

    Without it a worker ends as soon as it holds a federation of more than 100 MB, and the next one
    spends seconds on imports and on that federation.
    """
    with suppress(ImportError):
        from joblib.externals.loky import process_executor

        process_executor._MAX_MEMORY_LEAK_SIZE = 8 * 2**30
