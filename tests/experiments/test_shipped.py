"""Records that are shipped: all of a paper in one file, each found by its trial's identity."""

import json

import pandas as pd
import pytest

from fedclust.experiments import Trial, shipped, sweep, verify

SMALL = {
    "data": {"name": "glyphs", "n": 80, "n_test": 40},
    "partition": {"kind": "iid", "clients": 2},
    "model": {"kind": "mlp", "hidden": [4]},
    "train": {"lr": 0.1},
    "method": {"kind": "FedAvg"},
    "rounds": 2,
}
TRIALS = [Trial(SMALL, seed) for seed in (0, 1)] + [
    Trial(SMALL | {"rounds": 3}, 0, task="averaged")
]


@pytest.fixture
def made(tmp_path):
    """Three records, and the folder to which they were shipped."""
    record = sweep(TRIALS, 1, "sequential", folder=tmp_path / "cache")
    runs = {run["identity"]: run for run in record.attrs["runs"]}
    shipped.ship(tmp_path / "shipped", runs.items())
    return record, runs, tmp_path / "shipped"


def test_records_come_back_as_they_were(made):
    record, runs, folder = made
    assert sorted(path.name for path in folder.iterdir()) == ["records.json", "records.parquet"]
    known = shipped.facts(folder)
    assert known.keys() == {trial.identity for trial in TRIALS}
    for identity, run in runs.items():
        own, kept = pd.read_parquet(run["path"]), shipped.read(known[identity])
        texts = ["algorithm", "metric"]
        own[texts], kept[texts] = own[texts].astype(str), kept[texts].astype(str)
        pd.testing.assert_frame_equal(own, kept, check_exact=True)
        assert (known[identity]["settings"], known[identity]["depends"]) == (
            run["settings"],
            run["depends"],
        )
    again = sweep(TRIALS, 1, "sequential", folder=folder / "none", shipped=folder)
    pd.testing.assert_frame_equal(again, record, check_exact=True)
    assert [run["why"] for run in again.attrs["runs"]] == 3 * ["shipped record"]


def test_shipping_adds_to_what_is_there(made):
    _, runs, folder = made
    first = dict([next(iter(runs.items()))])
    shipped.ship(folder, first.items())
    assert shipped.facts(folder).keys() == first.keys()
    shipped.ship(folder, (shipped.facts(folder) | runs).items())
    assert shipped.facts(folder).keys() == runs.keys()


def test_what_nobody_reads_is_not_shipped(made):
    _, runs, folder = made
    shipped.ship(folder, runs.items(), unread=["loss"])
    for identity, about in shipped.facts(folder).items():
        own, kept = pd.read_parquet(runs[identity]["path"]), shipped.read(about)
        assert {*own.metric} - {*kept.metric} == {"loss"} and "loss" in {*own.metric}
        assert kept.value.tolist() == own[own.metric != "loss"].value.tolist()
        assert verify.distance(kept, own) == 0.0


@pytest.mark.parametrize("victim", shipped.NAMES)
def test_a_damaged_file_counts_for_nothing(made, victim):
    _, _, folder = made
    content = (folder / victim).read_bytes()
    for damaged in (content[:-9], content[:50] + b"\x00" + content[51:], b"", b"{}"):
        (folder / victim).write_bytes(damaged)
        assert shipped.facts(folder) == {}
        with pytest.raises(ValueError, match=r"records\.json or its other file .*git restore"):
            shipped.intact(folder)
    (folder / victim).write_bytes(content)
    assert len(shipped.facts(folder)) == len(shipped.intact(folder)) == 3
    (folder / victim).unlink()
    assert shipped.facts(folder) == {}


def test_a_folder_without_records_is_intact(tmp_path):
    assert shipped.intact(tmp_path) == {}


def test_facts_cannot_be_changed_by_hand(made):
    _, _, folder = made
    note = json.loads((folder / "records.json").read_text())
    next(iter(note["trials"].values()))["seconds"] = 0.0
    (folder / "records.json").write_text(json.dumps(note))
    assert shipped.facts(folder) == {}
