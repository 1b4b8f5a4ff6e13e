"""Compiled code kept on disk: damage heals, and a checkout that cannot be written serves what it
has."""

import os
from pathlib import Path

import pytest

TOY = """
import numba
from fedclust.fast import tuning
@numba.njit
def twice(x):
    return x + x
tuning.keep_compiled(twice, "stamp")
"""


def run(folder: Path) -> list[int]:
    """Hits and misses of the file when it is read anew, as by a new process."""
    path, names = folder / "toy.py", {"__name__": "toy"}
    exec(compile(path.read_text(), path, "exec"), names)
    twice = names["twice"]
    assert twice(4) == 8
    return [sum(found.values()) for found in (twice.stats.cache_hits, twice.stats.cache_misses)]


@pytest.fixture
def toy(tmp_path):
    (tmp_path / "toy.py").write_text(TOY)
    assert run(tmp_path) == [0, 1] and run(tmp_path) == [1, 0]
    return tmp_path


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[: len(b) // 2],
        lambda b: bytes(len(b)),
        lambda b: b[:-9] + b"x" * 9,
    ],
    ids=["empty", "cut", "zeroed", "overwritten"],
)
def test_a_damaged_file_heals(toy, suffix, damage):
    (file,) = (toy / "__pycache__").glob(f"*.{suffix}")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert run(toy) == [0, 1]
    assert run(toy) == [1, 0]


def test_what_cannot_be_written_is_read(toy):
    kept = toy / "__pycache__"
    before = {path: path.read_bytes() for path in kept.iterdir()}
    kept.chmod(0o555)
    try:
        assert run(toy) == [1, 0]
        (toy / "toy.py").write_text(TOY.replace('"stamp"', '"other"'))
        if os.getuid():  # root may write everywhere
            assert run(toy) == run(toy) == [0, 1]
            assert {path: path.read_bytes() for path in kept.iterdir()} == before
    finally:
        kept.chmod(0o755)
