"""Malformed input of every kind: one clear line that says what is wrong, and nothing is written.

Parameters, papers' files, data files and archives are here, trials in test_trials.py.
"""

import copy
import gzip
import io
import math
import random
import tarfile
import time
import tomllib
import warnings
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedclust import datasets
from fedclust.datasets import DataUnavailable, Spec, decode, download, load
from fedclust.report import papers
from tests.datasets.test_datasets import FILES, X, Y
from tests.faults.campaign import LONGEST, PATIENCE, complaint, complaints, count, some

KEYS = ("cafa", "dcfl", "fedac", "joint", "ocfl")
NAN, INF = math.nan, math.inf
WRONG = {  # for a setting of this type
    int: ["many", "1.5", 2.5, True, [1], {}, NAN, INF, -(10**9), "1_", [[]]],
    float: ["many", "", True, [0.5], {}, NAN, INF, -1e300, "1,5", [[]]],
    bool: ["maybe", 3, 0.5, [], {}, "2", NAN],
    str: [3, True, 2.5, [], {}, NAN, "no such choice"],
    list: [{}, 0.5, True, "many", NAN, [[]], [None]],
}
SEEDS = [[], [0, 0], [0.5], "many", {}, True, -1, 0, "[0,", ["0"], [True], NAN, 10**9, [10**30]]
RUN = {
    "tier": ["huge", 3, [], "Quick", ""],
    "jobs": [0, -1, "two", 1.5, [], True, NAN],
    "backend": [3, [], 0.5, {}],
}


def wrong_parameters(key: str) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = [("seeds", value) for value in SEEDS]
    found += [(name, value) for name, values in RUN.items() for value in values]
    for setting in papers.load(key).settings.values():
        if setting.get("parameter") and setting["name"] != "seeds":
            wrong = WRONG[type(setting["value"])]
            found += [(setting["name"], value) for value in wrong if not allowed(setting, value)]
    return found


def allowed(setting: dict, value: object) -> bool:
    """A free text may be any text."""
    return isinstance(value, str) and isinstance(setting["value"], str) and "allowed" not in setting


def test_parameters():
    cases = [(key, name, value) for key in KEYS for name, value in wrong_parameters(key)]
    assert len(cases) >= 500
    acts = {
        f"{key}: {name}={value!r}": partial(papers.start, key, {"tier": "smoke", name: value})
        for key, name, value in some(cases)
    }
    found = complaints(acts)
    assert not found, f"{len(found)} of {len(acts)}:\n" + "\n".join(found)


def spoiled(text: str, dice: random.Random) -> str:
    """A line removed, a line twice, the rest cut off, or a few characters others."""
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
def test_spoiled_paper_files(key, tmp_path):
    """Some are still a paper's file after that, and may pass; the rest is refused clearly."""
    text, dice = (papers.root() / "papers" / f"{key}.toml").read_text(), random.Random(key)
    path, refused, found = tmp_path / f"{key}.toml", 0, []
    for case in range(max(10, count(80))):
        path.write_text(spoiled(text, dice))
        why = complaint(partial(papers.load, key, path))
        refused += why is None
        found += [f"case {case}: {why}"] if why not in (None, "accepted") else []
    assert not found, "\n".join(found)
    assert refused >= case / 3


def places(content: object, path: tuple = ()) -> Iterator[tuple]:
    """The paths of all values in a paper's file."""
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for name, value in items:
            yield (*path, name)
            yield from places(value, (*path, name))


def with_value(content: dict, path: tuple, value: object) -> dict:
    content = copy.deepcopy(content)
    part = content
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return content


@pytest.mark.parametrize("key", KEYS)
def test_paper_files_with_a_value_of_another_type(key):
    """Where a text, a number or a list may be several things, some of these values pass."""
    file = papers.root() / "papers" / f"{key}.toml"
    content, dice = tomllib.loads(file.read_text()), random.Random(key)
    every, refused, found = list(places(content)), 0, []
    for path in dice.sample(every, max(10, count(120))):
        value = dice.choice([3, -1.5, True, "x", "", [], {}, [[]], [{}], NAN, INF, {"a": 1}])
        name = f"{key}.toml {'.'.join(map(str, path))} = {value!r}"
        why = complaint(partial(papers.check, with_value(content, path, value), file.name))
        refused += why is None
        found += [f"{name}: {why}"] if why not in (None, "accepted") else []
    assert not found, f"{len(found)}:\n" + "\n".join(found)
    assert refused >= max(10, count(120)) / 3


@pytest.mark.parametrize(
    "expr",
    [
        5, [], {}, "", " ", "acc +", "acc; acc", "@pd.io.common.os.system('x')", "acc.to_csv('x')",
        "@pd.read_pickle('x')", "9**9**9**9", "__import__('os')", "lambda: 0", "[acc]", "acc[0]",
        "acc if acc else acc", "eval('1')", "'text'", "acc == acc == acc", "not acc", "acc" * 5000,
        "(" * 500 + "acc" + ")" * 500, "acc ** acc", "1e400", "acc & acc", "sum(acc)", "min()",
    ],
)  # fmt: skip
def test_expressions_of_a_claim(expr, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = papers.root() / "papers" / "dcfl.toml"
    content = tomllib.loads(file.read_text())
    content["claim"][0]["test"][0]["expr"] = expr
    assert complaint(partial(papers.check, content, file.name)) is None
    assert not list(tmp_path.iterdir())


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
        [
            content[:at],
            content + content[: at + 1],
            content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :],
        ]
    )


@pytest.mark.parametrize("zipped", [False, True])
def test_data_files(toy, zipped):
    """30 each: the set is not there, the error says which file's folder was looked at and why it
    was not used.
    """
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
    """30 each. A damaged byte in an unused header leaves the content right: its hash says so."""
    good, dice, refused = pack(), random.Random(pack.__name__), 0
    for _ in range(30):
        (toy / name).write_bytes(damaged(good, dice))
        began = time.process_time()
        try:
            got = load("toy")
        except DataUnavailable as error:
            refused += 1
            assert time.process_time() - began <= PATIENCE
            (said,) = (line for line in str(error).splitlines() if "archive: " in line)
            assert len(said) <= LONGEST  # one line for each source
            assert not (toy / "cache/fedclust/toy.pt").exists()
        else:
            assert np.array_equal(got.x, X[:4, None])
            (toy / "cache/fedclust/toy.pt").unlink()
    assert refused >= 10
