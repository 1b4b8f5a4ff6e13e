import gzip
import io
import os
import pickle
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import types
import zipfile
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

import fedclust
from fedclust.datasets import sources

rng = np.random.default_rng(0)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


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


# IDX


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.binary(min_size=125, max_size=125))
def test_idx_gives_back_what_was_written(shape, pixels):
    array = np.frombuffer(pixels, np.uint8)[: np.prod(shape)].reshape(shape)
    assert np.array_equal(sources.idx(idx(array), len(shape)), array)


@given(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda tail: b"\0\0\x08\x03" + tail)))
@example(b"")
@example(b"\0\0\x08\x03" + b"\xff" * 12)  # promises 2**96 bytes
@example(idx(np.zeros((2, 3, 3), np.uint8))[:-1])
@example(idx(np.zeros((2, 3, 3), np.uint8)) + b"\0")
@example(idx(np.zeros((2, 3), np.uint8)))
def test_whatever_is_no_idx_file_is_a_clear_error(data):
    try:
        array = sources.idx(data, 3)
    except ValueError as error:
        assert "not an IDX file" in str(error) or "cut short or damaged" in str(error)
    else:
        assert idx(array) == data


def test_emnist_is_turned_upright():
    letter = np.array([[9, 0, 0], [9, 0, 0], [9, 9, 9]], np.uint8)  # an L
    x, y, x_test, y_test = sources.idx_turned([idx(letter.T[None].copy()), idx(np.array([21], np.uint8))])
    assert np.array_equal(x[0, 0], letter) and y.tolist() == [21]
    assert x_test.shape == (0, 1, 3, 3) and y_test.shape == (0,)


# CIFAR's three editions


def python2_pickle(y: np.ndarray, x: np.ndarray) -> bytes:
    """The opcodes as Python 2 wrote them: {"batch_label": ..., "labels": [...], "data": array, "filenames": [...]}."""

    def text(word: bytes) -> bytes:
        return b"U" + bytes([len(word)]) + word

    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0" + text(b"b") + b"tR(K\x01K\x02M\0\x0c\x86"
    data = array + text(b"u1") + b"T" + struct.pack("<I", x.size) + x.tobytes() + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in y) + b"e"
    names = b"](" + text(b"a.png") + text(b"b.png") + b"e"
    body = text(b"batch_label") + text(b"training batch 1 of 5") + text(b"labels") + labels
    return b"\x80\x02}(" + body + text(b"data") + data + text(b"filenames") + names + b"u."


def test_cifar_editions_agree():
    x, y = rng.integers(0, 256, (6, 2, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, (6, 2), dtype=np.uint8)
    binary = [b"".join(bytes([y[i, j]]) + x[i, j].tobytes() for j in range(2)) for i in range(6)]
    python = [python2_pickle(y[i], x[i]) for i in range(6)]
    for decoded in (sources.cifar_binary(binary), sources.cifar_python(python)):
        for got, wanted in zip(decoded, (x[:5].reshape(-1, 3, 32, 32), y[:5].ravel(), x[5], y[5]), strict=True):
            assert np.array_equal(got, wanted)


def test_cifar_pictures():
    sheet = np.zeros((10_000, 1024, 3), np.uint8)
    sheet[7, 33] = 1, 2, 3  # image 7, second line, second pixel
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "PNG", compress_level=1)
    x, y, x_test, y_test = sources.cifar_png([file.getvalue()] * 6 + [b"[6, 9]", b"[3]"])
    assert x.shape == (50_000, 3, 32, 32) and x_test.shape == (10_000, 3, 32, 32)
    assert x[40_007, :, 1, 1].tolist() == x_test[7, :, 1, 1].tolist() == [1, 2, 3] and x_test.sum() == 6
    assert y.tolist() == [6, 9] and y_test.tolist() == [3]
    small = io.BytesIO()
    Image.fromarray(sheet[:5]).save(small, "PNG")
    with pytest.raises(ValueError, match=r"RGB picture of \(1024, 5\)"):
        sources.cifar_png([small.getvalue()] * 8)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_a_pickle_is_never_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no list of labels"):
        sources.cifar_python([pickle.dumps(Evil(), protocol=2)] * 6)
    assert not (tmp_path / "executed").exists()


# Archives


def test_named_members_are_read(tmp_path):
    packed = tar(tmp_path / "a.tgz", ("package/b", b"B"), ("./package/a", b"A"), ("package/other", b"?"))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("package/a", b"A")
        file.writestr("package/b", b"B")
    for archive in (packed, tmp_path / "a.zip"):
        assert sources.unpack(archive, ["package/a", "package/b"]) == [b"A", b"B"]
        with pytest.raises(ValueError, match=rf"{archive.name} has no package/c"):
            sources.unpack(archive, ["package/a", "package/c"])


def linked(kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo("package/a")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    "bad",
    [("../a", b""), ("/a", b""), ("x/../../a", b""), ("..\\a", b"")]
    + [linked(kind) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)],
)
def test_archives_that_point_outside_are_refused(tmp_path, bad):
    name = bad.name if isinstance(bad, tarfile.TarInfo) else bad[0]
    with pytest.raises(ValueError, match="archive refused") as error:
        sources.unpack(tar(tmp_path / "a.tgz", bad, ("package/a", b"A")), ["package/a"])
    assert repr(name) in str(error.value)
    entry = zipfile.ZipInfo(name)
    if isinstance(bad, tarfile.TarInfo):
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr(entry, b"/etc/passwd")
        file.writestr("package/other", b"A")
    with pytest.raises(ValueError, match="archive refused"):
        sources.unpack(tmp_path / "a.zip", ["package/other"])


def test_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LIMIT", 100_000)
    zeros = bytes(1_000_000)
    with pytest.raises(ValueError, match="more than 100,000 bytes"):
        sources.plain(gzip.compress(zeros))
    long_name = tarfile.TarInfo("package/" + "x" * 1_000_000)  # hides its size in a header
    for bomb in (("package/a", zeros), ("package/ignored", zeros), long_name):
        with pytest.raises(ValueError, match="more than 100,000 bytes"):
            sources.unpack(tar(tmp_path / "a.tgz", bomb, ("package/b", b"B")), ["package/b"])
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("package/a", zeros)
    with pytest.raises(ValueError, match="more than 100,000 bytes"):
        sources.unpack(tmp_path / "a.zip", ["package/a"])


@given(st.binary(max_size=200))
@example(gzip.compress(b"no archive"))
def test_no_archive_is_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("archive") / "a.tgz"
    path.write_bytes(data)
    with pytest.raises((ValueError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile)):
        sources.unpack(path, ["package/a"])


# Registries and addresses, with clients and servers of our own


def test_npm(tmp_path, monkeypatch):
    tar(tmp_path / "packed", ("package/data/a", b"A"))
    program(tmp_path / "bin", "npm", f'[ "$*" = "pack name@1.0" ]; cp {tmp_path}/packed name-1.0.tgz')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "scratch").mkdir()
    source = sources.npm("name@1.0", ["data/a"], lambda parts: parts)
    assert source(tmp_path / "scratch") == [b"A"]
    program(tmp_path / "bin", "npm", "echo progress >&2; echo no such package >&2; exit 3")
    with pytest.raises(ChildProcessError, match=r"npm pack name@1.0 ended with code 3: no such package"):
        source(tmp_path / "scratch")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="npm is not on this machine"):
        source(tmp_path / "scratch")


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="Debian's tools only")
def test_apt_updates_its_lists_only_when_it_must_and_may(tmp_path, monkeypatch):
    (tmp_path / "tree" / "DEBIAN").mkdir(parents=True)
    control = "Package: some-data\nVersion: 1\nArchitecture: all\nMaintainer: x <x@localhost>\nDescription: x\n"
    (tmp_path / "tree" / "DEBIAN" / "control").write_text(control)
    (tmp_path / "tree" / "usr").mkdir()
    (tmp_path / "tree" / "usr" / "a.gz").write_bytes(gzip.compress(b"A"))
    subprocess.run(["dpkg-deb", "--build", tmp_path / "tree", tmp_path / "built"], check=True, capture_output=True)
    script = f'cd_log={tmp_path}/log; echo "$1" >> $cd_log; if [ "$1" = update ]; then exit 0; fi; '
    script += f"grep -q update $cd_log || {{ echo unable to locate >&2; exit 100; }}; cp {tmp_path}/built some-data.deb"
    program(tmp_path / "bin", "apt-get", script)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "scratch").mkdir()
    source = sources.apt("some-data", ["usr/a.gz"], lambda parts: parts)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ChildProcessError, match="unable to locate"):
        source(tmp_path / "scratch")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert source(tmp_path / "scratch") == [b"A"]
    assert (tmp_path / "log").read_text().split() == ["download", "download", "update", "download"]


def test_torchvisions_addresses(tmp_path, monkeypatch):
    tar(tmp_path / "packed", ("inner/a", b"A"))
    asked = []

    def urlopen(request, timeout):
        asked.append(request.full_url)
        if "down" in request.full_url:
            raise URLError("no route")
        archive = request.full_url.endswith("archive.tar.gz")
        return io.BytesIO((tmp_path / "packed").read_bytes() if archive else gzip.compress(b"file"))

    files = types.SimpleNamespace(mirrors=["http://down/", "http://up/"])
    packed, nowhere = types.SimpleNamespace(url="http://up/archive.tar.gz"), types.SimpleNamespace(url="http://down/x")
    fake = types.SimpleNamespace(datasets=types.SimpleNamespace(Files=files, Packed=packed, Nowhere=nowhere))
    monkeypatch.setitem(sys.modules, "fedclust._torchvision", types.SimpleNamespace(torchvision=fake))
    monkeypatch.setattr(sources, "urlopen", urlopen)
    assert sources.web("Files", ["a", "b"], lambda parts: parts)(tmp_path) == [b"file", b"file"]
    assert asked == ["http://down/a.gz", "http://up/a.gz", "http://down/b.gz", "http://up/b.gz"]
    assert sources.web("Packed", ["inner/a"], lambda parts: parts)(tmp_path) == [b"A"]
    with pytest.raises(OSError, match=r"no answer from http://down/x .*no route"):
        sources.web("Nowhere", ["a"], lambda parts: parts)(tmp_path)


def test_torchvision_imports_beside_any_torch():
    """In a fresh interpreter; the shim alone must not make interpreters slow by importing torch."""
    shim = Path(fedclust.__file__).with_name("_torchvision.py")
    code = f"""
import sys, runpy
runpy.run_path({str(shim)!r})
assert "torch" not in sys.modules
import torchvision
assert torchvision.models.vgg19 and torchvision.datasets.MNIST.mirrors
"""
    subprocess.run([sys.executable, "-c", code], check=True)
