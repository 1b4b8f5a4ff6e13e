"""Damaged checkpoints, facts and records: time is lost, never a right number for a wrong one."""

import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from fedclust import datasets, models, partition
from fedclust.algorithms import CFL
from fedclust.experiments import Trial, sweep
from fedclust.experiments import shipped as records
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.faults.campaign import count

ROUNDS = 3


class Stopped(Exception):
    pass


def damages(content: bytes, dice: random.Random) -> Iterator[bytes]:
    """Without end: a bit, a byte, a block, a cut, more at the end, nothing, something else."""
    n = len(content)
    while True:
        at, length = dice.randrange(n), dice.choice((1, 64, 4096))
        flipped = bytes([content[at] ^ 1 << dice.randrange(8)])
        yield content[:at] + flipped + content[at + 1 :]
        yield content[:at] + bytes(length) + content[at + length :]
        yield content[:at] + dice.randbytes(length) + content[at + length :]
        yield content[:at]
        yield content + dice.randbytes(length)
        yield content[at:] + content[:at]
        yield dice.choice((b"", b"hello", b"{}", b"[]", b"null", b"\x00" * n, b'{"sha256": 1}'))


def changed(content: bytes, cases: int) -> Iterator[bytes]:
    """Damages that are none (zeros on zeros) are left out."""
    endless = damages(content, random.Random(0))
    for _ in range(cases):
        yield next(damaged for damaged in endless if damaged != content)


def same(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    names = {"algorithm": str, "metric": str}  # as categories they depend on what else is there
    a, b = (frame.reset_index(drop=True).astype(names) for frame in (a, b))
    return a.equals(b)


def small_run(checkpoint: Path | None = None, progress=None) -> pd.DataFrame:
    data = datasets.load("glyphs", n=80, n_test=40)
    fed = partition.class_groups(data, clients=4, groups=2)
    model = models.mlp(fed.shape, fed.classes, hidden=(4,))
    method = CFL(LocalSGD(model, lr=0.1, batch=10), eps1=10.0, eps2=0.0)
    options = {"checkpoint": checkpoint} | ({"progress": progress} if progress else {})
    return run(method, fed, model, rounds=ROUNDS, seed=0, **options)


def test_damaged_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr("fedclust.record.CHECKPOINT_SECONDS", -1.0)
    undisturbed = small_run()
    path, before = tmp_path / "run.ckpt", tmp_path / "run.before"

    def stop(done: int, rounds: int) -> None:
        if done == ROUNDS:
            raise Stopped

    with pytest.raises(Stopped):
        small_run(path, stop)
    whole = path.read_bytes(), before.read_bytes()
    assert same(small_run(path), undisturbed)
    for case, content in enumerate(changed(whole[0], count(400))):
        path.write_bytes(content)
        before.write_bytes(whole[1] if case % 2 else content)  # is the older one whole?
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert same(small_run(path), undisturbed), f"case {case}: wrong numbers"
        assert any("checkpoint" in str(w.message) and "removed" in str(w.message) for w in said)


TRIAL = Trial(
    {
        "data": {"name": "glyphs", "n": 80, "n_test": 40},
        "partition": {"kind": "iid", "clients": 4},
        "model": {"kind": "mlp", "hidden": [4]},
        "train": {"lr": 0.1, "batch": 10},
        "method": {"kind": "FedAvg"},
        "rounds": 1,
    },
    seed=0,
)


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize("victim", [".parquet", ".json"])
def test_damaged_records_and_facts(tmp_path, victim, shipped):
    first = sweep([TRIAL], 1, "sequential", folder=tmp_path / "first")
    assert same(sweep([TRIAL], 1, "sequential", folder=tmp_path / "first"), first)
    records.ship(tmp_path / "shipped", [(TRIAL.identity, first.attrs["runs"][0])])
    kept = [*(tmp_path / ("shipped" if shipped else "first")).rglob("*.*")]
    for case, content in enumerate(changed(content_of(kept, victim), count(100))):
        folder = tmp_path / "again"
        shutil.rmtree(folder, ignore_errors=True)
        there = shutil.copytree(tmp_path / "first", folder / "cache")
        places = {"folder": there}
        if shipped:
            places = {"folder": folder / "empty", "shipped": folder / "shipped"}
            shutil.copytree(tmp_path / "shipped", folder / "shipped")
        for path in places["shipped" if shipped else "folder"].rglob(f"*{victim}"):
            path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = sweep([TRIAL], 1, "sequential", **places)
        assert same(again, first), f"case {case}: wrong numbers"
        assert not again.attrs["runs"][0]["reused"], f"case {case}: damage was not seen"


def content_of(kept: list[Path], suffix: str) -> bytes:
    return next(path.read_bytes() for path in kept if path.suffix == suffix)
