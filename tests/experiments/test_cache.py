"""What a record depends on: the code that its trial runs, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedclust.experiments import Trial, cache

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


IMPORTS = "\nimport torch\n"  # stands in every module


@pytest.mark.parametrize(
    ("module", "old", "new", "run_again"),
    [
        ("partition", IMPORTS, IMPORTS + "\ndef halves(data, clients): ...\n", []),
        ("partition", "def label_slices(", "@cache\ndef label_slices(", [2]),
        ("partition", "def iid(", "@cache\ndef iid(", [0, 1, 3]),
        ("models", "\ndef mlp(", "\ndef resnet(shape): ...\n\ndef mlp(", []),
        ("models", "\ndef cnn(", "\n@cache\ndef cnn(", []),
        ("experiments.tasks.cafa", "rows = ", "rows = None, ", [3]),
        ("experiments.tasks.train", "rounds=", "rounds=0 + ", [0, 1, 2]),
        ("algorithms.dcfl", "\nimport", "\nimport ast\nimport", [0]),
        ("algorithms.base", "\nimport", "\nimport ast\nimport", [0, 1, 2, 3]),
        ("privacy", "class DPSGD", "class Else: ...\n\n\nclass DPSGD", []),
        ("datasets.download", "\nimport", "\nimport ast\nimport", []),
        ("federation", "\nimport", "\nimport ast\nimport", [0, 1, 2, 3]),
        ("report.plots", "\nimport", "\nimport ast\nimport", []),
    ],
)
def test_a_change_runs_again_what_it_touches(edit, module, old, new, run_again):
    trials = [DCFL, JOINT, SLICED, CAFA]
    assert expired(edit, trials, f"fedclust.{module}", old, new) == run_again


def test_the_files_of_fast_count_where_they_are_entered():
    entered = {
        name: {file for file in cache.code(t) if file.startswith("fedclust.fast.")}
        for name, t in (("dcfl", DCFL), ("joint", JOINT), ("cnn", trial(model=CNN)))
    }
    joint_only = entered["joint"] - entered["dcfl"]
    assert any("sparse" in file for file in joint_only)
    assert any("convnet" in file for file in entered["cnn"] - entered["dcfl"])


@pytest.mark.parametrize("which", [DCFL, JOINT, SLICED, trial(model=CNN), CAFA])
def test_all_modules_of_the_core_that_a_trial_loads_are_counted(which):
    """In a process of its own: what the trial has imported in the end is in its dependencies."""
    program = (
        "import sys; from fedclust.experiments import tasks\n"
        f"tasks.find({which.task!r})({which.settings!r}, 0)\n"
        "print(*(m for m in sys.modules if m.startswith('fedclust.')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    core = cache.CORE | set(cache.CATALOGUES)
    not_run = {"fedclust.paths", "fedclust.mixtures", "fedclust.decision", "fedclust.gradients"}
    if which is CAFA:  # draws labels; tasks of other papers are imported with it
        core &= {"fedclust.partition", "fedclust.metrics", "fedclust.rng"}
    assert set(run.stdout.split()) & core - not_run <= set(cache.code(which))
