"""What a record depends on: the code that its trial runs, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedclust.experiments import Trial, cache, shipped, sweep
from fedclust.paths import root

DATA = {"data": {"name": "glyphs", "n": 60, "n_test": 20}, "rounds": 2}
BASE = {**DATA, "partition": {"kind": "iid", "clients": 4}, "train": {"lr": 0.1}}
MLP = {"kind": "mlp", "hidden": [8]}
CNN = {"kind": "cnn", "channels": [2], "hidden": [8]}


def trial(method="FedAvg", task="train", **changes):
    return Trial({**BASE, "model": MLP, "method": {"kind": method}, **changes}, 0, task=task)


DCFL, JOINT, SLICED = (
    trial("DCFL"),
    trial("Joint"),
    trial(partition={"kind": "label_slices", "clients": 5, "slices_per_client": 2}),
)
TURNED = trial(partition={"kind": "dirichlet_rotated", "clients": 2, "samples": 20})
CAFA = Trial({"classes": 10, "each": 5, "cases": [], "generator": "paper"}, 0, task="iid_found")


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Changes a module's text; the caches forget what they have read."""
    real = cache.source

    def forget():
        for function in (cache.tree, cache.references, cache.referred, cache.imported):
            function.cache_clear()
        cache.imports.cache_clear()
        cache.fingerprint.cache_clear()

    def edit(module, old, new):
        text = Path(real(module)).read_text()
        assert old in text
        changed = tmp_path / "changed.py"
        changed.write_text(text.replace(old, new, 1))
        monkeypatch.setattr(cache, "source", lambda m: changed if m == module else real(m))
        forget()

    yield edit
    monkeypatch.undo()
    forget()


def expired(edit, trials, *change):
    """The positions of the trials that a change makes run again."""
    before = [cache.dependencies(trial) for trial in trials]
    edit(*change)
    after = [cache.dependencies(trial) for trial in trials]
    return [i for i, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]


IMPORTS = "\nimport numpy as np\n"


@pytest.mark.parametrize(
    ("module", "old", "new", "run_again"),
    [
        ("partition", IMPORTS, IMPORTS + "\ndef halves(data, clients): ...\n", []),
        ("experiments.parts.ocfl", "def label_slices(", "@cache\ndef label_slices(", [2]),
        ("partition", "def iid(", "@cache\ndef iid(", [0, 1]),
        ("models", "\n@checked\ndef mlp(", "\ndef resnet(shape): ...\n\n@checked\ndef mlp(", []),
        ("models", "\ndef cnn(", "\n@cache\ndef cnn(", []),
        ("experiments.tasks.cafa", "rows = ", "rows = None, ", [3]),
        ("experiments.parts.cafa", "order, ", "none, order, ", [3]),
        ("experiments.parts.dcfl", "\nimport", "\nimport ast\nimport", [4]),
        ("experiments.tasks.train", "rounds=", "rounds=0 + ", [0, 1, 2, 4]),
        ("algorithms.dcfl", "\nimport", "\nimport ast\nimport", [0]),
        ("algorithms.base", "\nimport", "\nimport ast\nimport", [0, 1, 2, 3, 4]),
        ("privacy", "class DPSGD", "class Else: ...\n\n\nclass DPSGD", []),
        ("datasets.download", "\nimport", "\nimport ast\nimport", []),
        ("datasets", "\ndef load(", "\n@cache\ndef load(", []),
        ("datasets.dataset", "    def shrunk(", "    @cache\n    def shrunk(", [0, 1, 2, 4]),
        ("federation", "\nimport", "\nimport ast\nimport", [0, 1, 2, 3, 4]),
        ("report.plots", "\nimport", "\nimport ast\nimport", []),
    ],
)
def test_a_change_runs_again_what_it_touches(edit, module, old, new, run_again):
    trials = [DCFL, JOINT, SLICED, CAFA, TURNED]
    assert expired(edit, trials, f"fedclust.{module}", old, new) == run_again


def test_the_noise_of_one_paper_counts_where_it_is_asked_for():
    noised = trial(train={"lr": 0.1, "privacy": {"kind": "UpdateNoise", "epsilon": 5.0}})
    private = trial(train={"lr": 0.1, "privacy": {"kind": "DPSGD", "epsilon": 5.0}})
    home = "fedclust.experiments.parts.dcfl"
    assert [home in cache.code(each) for each in (noised, private, trial())] == [True, False, False]


def test_the_files_of_fast_count_where_they_are_entered():
    entered = {
        name: {file for file in cache.code(t) if file.startswith("fedclust.fast.")}
        for name, t in (("dcfl", DCFL), ("joint", JOINT), ("cnn", trial(model=CNN)))
    }
    joint_only = entered["joint"] - entered["dcfl"]
    assert any("choice" in file for file in joint_only)
    assert any("convnet" in file for file in entered["cnn"] - entered["dcfl"])


LOADED = """
import json, os, sys
import pandas, sklearn.cluster, sklearn.metrics, torch
for task, settings in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    from fedclust.experiments import tasks
    tasks.find(task)(settings, 0)
    print(*(name for name in sys.modules if name.startswith("fedclust.")), flush=True)
    os._exit(0)
"""


def test_all_modules_of_the_core_that_a_trial_loads_are_counted():
    """In a process of its own: what the trial has imported in the end is in its dependencies."""
    trials = [DCFL, JOINT, SLICED, trial(model=CNN), CAFA]
    given = json.dumps([(each.task, each.settings) for each in trials])
    run = subprocess.run(
        [sys.executable, "-c", LOADED, given], capture_output=True, check=True, text=True
    )
    not_run = {"fedclust.paths"}
    not_run.add("fedclust.accounting")  # imported by privacy, which these trials have none of
    for each, loaded in zip(trials, run.stdout.splitlines(), strict=True):
        core = (cache.CORE | set(cache.CATALOGUES)) - not_run
        if each is CAFA:  # draws labels; tasks of other papers are imported with it
            core &= {"fedclust.partition", "fedclust.metrics", "fedclust.rng"}
        assert set(loaded.split()) & core <= set(cache.code(each))


SMALL = {
    "data": {"name": "glyphs", "n": 40, "n_test": 10},
    "partition": {"kind": "iid", "clients": 2},
}
SMALL |= {"model": MLP, "train": {"lr": 0.1}, "method": {"kind": "FedAvg"}, "rounds": 1}


def made(folder):
    """A trial, and where its record lies."""
    sweep([Trial(SMALL, 0)], 1, "sequential", folder=folder)
    return cache.Place.of(Trial(SMALL, 0), folder)


def test_a_damaged_byte_in_the_facts_is_noticed(tmp_path):
    place = made(tmp_path)
    note = place.file(".json")
    whole, facts = note.read_bytes(), place.facts()
    for at in range(0, len(whole), 29):
        for flipped in (1, 64):
            note.write_bytes(whole[:at] + bytes([whole[at] ^ flipped]) + whole[at + 1 :])
            assert place.facts() is None or place.facts() == facts, at
            assert place.why() == "record damaged"
    note.write_bytes(whole)
    assert place.facts() == facts


@pytest.mark.parametrize(
    "content", ["", "[]", "null", "3", '"x"', "[" * 10**5, '{"depends": 3}', "\0"]
)
def test_facts_that_are_something_else_are_damaged(tmp_path, content):
    place = made(tmp_path)
    place.file(".json").write_text(content)
    assert place.facts() is None and place.why() == "record damaged"
    record = sweep([Trial(SMALL, 0)], 1, "sequential", folder=tmp_path)
    assert record.attrs["runs"][0]["why"] == "record damaged" and place.facts()


def test_what_killed_runs_left_is_tidied_up_and_does_not_count(tmp_path):
    place = cache.Place.of(Trial(SMALL, 0), tmp_path)
    place.folder.mkdir(parents=True)
    old = [place.folder / name for name in ("0123.ckpt", "0123.rounds", "x.parquet.12.tmp")]
    young = place.folder / "y.parquet.13.tmp"  # of another run, perhaps
    for path in (*old, young, place.folder / ".DS_Store"):
        path.write_text("left")
    for path in old:
        os.utime(path, (1e9, 1e9))
    record = sweep([Trial(SMALL, 0)], 1, "sequential", folder=tmp_path)
    assert record.attrs["runs"][0]["why"] == "new"
    names = {path.name for path in place.folder.iterdir()}
    assert names == {place.file(s).name for s in (".json", ".parquet")} | {young.name, ".DS_Store"}


def test_shipped_records_are_whole():
    folders = [note.parent for note in (root() / "figures").glob("*/*/records.json")]
    assert folders and all(shipped.facts(folder) for folder in folders)
