"""Malformed input of every kind: a clear error of our own that names what is wrong, and nothing written or replaced.

The cases of a parameter are counted per paper (58 to 115), the others in each test; together 655.
"""

import gzip
import io
import math
import random
import tarfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedclust import datasets
from fedclust.datasets import DataUnavailable, Spec, decode, download, load
from fedclust.report import papers
from tests.datasets.test_datasets import FILES, X, Y

KEYS = ("cafa", "dcfl", "fedac", "joint", "ocfl")
WRONG = {  # for a setting of this type
    int: ["many", "1.5", 2.5, True, [1], {}, math.nan, -(10**9)],
    float: ["many", "", True, [0.5], {}, math.nan, -1e300],
    bool: ["maybe", 3, 0.5, [], {}],
    str: [3, True, 2.5, [], {}, "no such choice"],
    list: [{}, 0.5, True, "many"],
}
SEEDS = [[], [0, 0], [0.5], "many", {}, True, -1, "[0,", ["0"]]
RUN = {"tier": ["huge", 3, [], "Quick"], "jobs": [0, -1, "two", 1.5, []], "backend": [3, [], 0.5]}


def wrong_parameters(key: str) -> list[tuple[str, object]]:
    settings = [s for s in papers.load(key).settings.values() if s.get("parameter") and s["name"] != "seeds"]
    found = [(s["name"], value) for s in settings for value in WRONG[type(s["value"])] if not allowed(s, value)]
    return found + [("seeds", v) for v in SEEDS] + [(name, v) for name, values in RUN.items() for v in values]


def allowed(setting: dict, value: object) -> bool:
    """A free text may be any text."""
    return isinstance(value, str) and isinstance(setting["value"], str) and "allowed" not in setting


@pytest.mark.parametrize("key", KEYS)
def test_parameters(key):
    cases = wrong_parameters(key)
    assert len(cases) >= 25
    for name, value in cases:
        with pytest.raises(papers.PaperError) as error:
            papers.start(key, {"tier": "smoke", name: value})
        assert name in str(error.value), (name, value)


def spoiled(text: str, dice: random.Random) -> str:
    """A line less, a line twice, the rest cut off, or a few characters others."""
    lines = text.splitlines()
    at = dice.randrange(len(lines))
    how = dice.randrange(4)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(at, lines[at])
    elif how == 2:
        return text[: dice.randrange(len(text))]
    else:
        characters = list(text)
        for _ in range(3):
            characters[dice.randrange(len(characters))] = dice.choice("\"'[]{}=#\n\x00é7")
        return "".join(characters)
    return "\n".join(lines)


@pytest.mark.parametrize("key", KEYS)
def test_paper_files(key, tmp_path):
    """20 a paper. What is still a paper's file after that may pass."""
    text, dice, refused = (papers.root() / "papers" / f"{key}.toml").read_text(), random.Random(key), 0
    for _ in range(20):
        path = tmp_path / f"{key}.toml"
        path.write_text(spoiled(text, dice))
        try:
            papers.load(key, path)
        except papers.PaperError as error:
            refused += 1
            assert f"{key}.toml" in str(error)
    assert refused >= 5


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Path:
    """A small set in a folder, and in one archive; no registry, a cache of its own."""
    sha256 = datasets.content_hash([X[:4, None], Y[:4], X[4:, None], Y[4:]])
    copy = "/bin/sh", "-c", f"cp {tmp_path}/packed* ."
    archive = download.Source("archive", command=copy, inside="{}")
    spec = Spec("abc", (4, 2), sha256, "Toy/raw", decode.IDX, (archive,))
    monkeypatch.setitem(datasets.SPECS, "toy", spec)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "Toy" / "raw").mkdir(parents=True)
    return tmp_path


def damaged(content: bytes, dice: random.Random) -> bytes:
    """Cut short, prolonged, or with one byte changed."""
    at = dice.randrange(len(content))
    return dice.choice(
        [content[:at], content + content[: at + 1], content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]]
    )


@pytest.mark.parametrize("zipped", [False, True])
def test_data_files(toy, zipped):
    """30 each: the set is not there, the error says which file's folder was looked at and why it was not used."""
    dice = random.Random(zipped)
    for _ in range(30):
        victim = dice.choice(list(FILES))
        for name, content in FILES.items():
            packed = gzip.compress(content, mtime=0) if zipped else content
            spoilt = damaged(packed, dice) if name == victim else packed
            (toy / "data/Toy/raw" / (name + ".gz" * zipped)).write_bytes(spoilt)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = load("toy")
        except DataUnavailable as error:
            assert "FEDCLUST_DATA/Toy/raw" in str(error)
            assert not (toy / "cache/fedclust/toy.pt").exists()
        else:  # a byte that gzip does not look at
            assert zipped and np.array_equal(got.x, X[:4, None])
            (toy / "cache/fedclust/toy.pt").unlink()


def tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as file:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return made.getvalue()


def zipped() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in FILES.items():
            file.writestr(name, content)
    return made.getvalue()


@pytest.mark.parametrize(("name", "pack"), [("packed.tgz", tar), ("packed.zip", zipped)])
def test_archives(toy, name, pack):
    """30 each. A damaged byte in a header nobody needs leaves the content right: its hash says so."""
    good, dice, refused = pack(), random.Random(pack.__name__), 0
    for _ in range(30):
        (toy / name).write_bytes(damaged(good, dice))
        try:
            got = load("toy")
        except DataUnavailable as error:
            refused += 1
            assert "archive: " in str(error)
            assert not (toy / "cache/fedclust/toy.pt").exists()
        else:
            assert np.array_equal(got.x, X[:4, None])
            (toy / "cache/fedclust/toy.pt").unlink()
    assert refused >= 10
