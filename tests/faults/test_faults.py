"""Faults of the machine: none costs more than time, each is answered. `make faults` adds the long
one, the kills.

| fault | test |
|---|---|
| killed at any moment | test_kill.py; tests/experiments (worker), tests/datasets (while fetching) |
| disk full, cache not writable | tests/test_experiments.py |
| figures not writable | here |
| damaged record, facts or checkpoint | tests/test_experiments.py |
| damaged data file | tests/test_datasets.py, test_malformed.py |
| damaged notebook or verdicts | here |
| two runs at once in one checkout | here |
| clock going backwards | here |
| a client diverges | tests/test_simulation.py |
| a worker out of memory | here |
| Ctrl-C | tests/test_cli.py |
| a node of a cluster is lost | tests/test_cluster.py |
"""

import os
import resource
import subprocess
import sys
import textwrap
import time

import pandas as pd
import pytest

from fedclust import cli, paths, report
from fedclust.experiments import Trial, TrialsFailed, sweep, tasks
from fedclust.report import papers, scoreboard
from tests.experiments.test_sweeps import SETTINGS, go, same, small
from tests.report.test_report import TOML, parameters


def test_figures_that_cannot_be_written_are_named_before_anything_is_trained(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDCLUST_FIGURES", str(tmp_path / "file" / "figures"))
    with pytest.raises(OSError, match=r"cannot write to .*set FEDCLUST_FIGURES"):
        report.Report(papers.check(papers.tomllib.loads(TOML), "toy.toml"), parameters())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"paper": "dcfl"}', "\x00"])
def test_damaged_verdicts_are_named(tmp_path, content):
    path = tmp_path / "figures" / "quick" / "dcfl" / "verdicts.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(ValueError, match=r"verdicts\.json is damaged .*make dcfl TIER=quick"):
        scoreboard.verdicts(tmp_path, "quick")


def test_a_damaged_notebook_is_named_and_the_old_site_stays(tmp_path, monkeypatch, capsys):
    real = paths.root()
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))
    (tmp_path / "papers").symlink_to(real / "papers")
    made = tmp_path / "figures" / "quick" / "dcfl" / "verdicts.json"
    made.parent.mkdir(parents=True)
    made.write_text((real / "figures/quick/dcfl/verdicts.json").read_text())
    notebook = tmp_path / "replications/executed/quick/dcfl.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.write_text((real / "replications/executed/quick/dcfl.ipynb").read_text()[:1000])
    page = tmp_path / "build/site/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("the last good one")
    assert cli.main(["site"]) == 2
    assert "dcfl.ipynb is no notebook" in capsys.readouterr().err
    assert page.read_text() == "the last good one"
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["site"]


def test_two_runs_at_once_in_one_checkout(tmp_path):
    program = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from fedclust.experiments import Trial, sweep
        folder = Path({str(tmp_path)!r})
        (folder / f"ready{{sys.argv[1]}}").touch()
        while len(list(folder.glob("ready*"))) < 2:
            time.sleep(0.01)
        trials = [Trial({SETTINGS!r}, seed) for seed in range(4)]
        sweep(trials, 1, "sequential", folder=folder / "cache")
    """)
    runs = [subprocess.Popen([sys.executable, "-c", program, name]) for name in "ab"]
    assert [run.wait() for run in runs] == [0, 0]
    trials = [Trial(SETTINGS, seed) for seed in range(4)]
    both = go(trials, tmp_path / "cache")
    assert all(run["reused"] for run in both.attrs["runs"])
    same(both, go(trials, tmp_path / "alone"))
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path, monkeypatch):
    first = go([small()], tmp_path)
    for path in tmp_path.rglob("*.*"):
        os.utime(path, (4e9, 4e9))  # made in 2096
    backwards = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(backwards)))
    again = go([small(), small(seed=1)], tmp_path)
    assert [run["reused"] for run in again.attrs["runs"]] == [True, False]
    same(again[again.seed == 0], first)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the address space")
def test_a_trial_that_asks_for_too_much_memory_fails_alone(tmp_path, monkeypatch):
    def greedy(settings, seed, checkpoint=None, progress=None):
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, limits[1]))
        try:
            return pd.DataFrame({"value": [len(bytearray(2**36))]})
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)

    monkeypatch.setitem(tasks.catalogue(), "greedy", greedy)
    with pytest.raises(TrialsFailed, match=r"1 of 2 trials failed.*\n.*\n(.*\n)*MemoryError"):
        sweep(
            [small(), Trial({"size": 2**36}, 0, "greedy", task="greedy")],
            1,
            "sequential",
            folder=tmp_path,
        )
    assert go([small()], tmp_path).attrs["runs"][0]["reused"]
