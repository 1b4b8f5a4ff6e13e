"""Settling a paper: what is missing is trained, stopped, gone on with and shipped."""

import json
import shutil

import pandas as pd
import pytest

from fedclust import cli
from fedclust.experiments import shipped, sweeps
from fedclust.paths import figures
from fedclust.report import Report, notebooks, papers, settling

TOML = """
key = "toy"
figure = []
[paper]
title = "Toy"
authors = ["A"]
venue = "V"
year = 2020
claim = "It learns."
hours = 1.0
[[setting]]
name = "seeds"
value = [0, 1, 2]
source = "assumed"
shipped = [0, 1]
[[setting]]
name = "rounds"
value = 3
source = "paper"
shipped = 2
[[claim]]
id = "c1"
short = "learns"
text = "It learns"
where = "text"
figure = ["text"]
uncontrolled = "a toy"
[[claim.test]]
label = "accuracy"
expr = "accuracy"
least = 0.01
reason = "any"
[[seeds_planned]]
tier = "paper"
number = 3
cap = 20
date = "2026-11-20"
reason = "a toy"
"""
NOTEBOOK = """# %% tags=["parameters"]
tier = "quick"
seeds = None
jobs = 1
backend = "loky"

# %%
import pandas as pd

from fedclust.experiments import Trial
from fedclust.report import Report, papers, readings

paper, p = papers.start("toy", globals())
report = Report(paper, p)
base = {
    "data": {"name": "glyphs", "n": 80, "n_test": 40},
    "partition": {"kind": "iid", "clients": 2},
    "model": {"kind": "mlp", "hidden": [4]},
    "train": {"lr": 0.1},
    "method": {"kind": "FedAvg"},
    "rounds": p.rounds,
}
record = report.sweep([Trial(base, s, "FedAvg") for s in p.seeds])

# %%
measures = pd.DataFrame({"accuracy": readings.by_round(record).iloc[:, -1]})
report.judge(measures)
report.close()
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))
    monkeypatch.delenv("FEDCLUST_FIGURES", raising=False)
    for folder in ("papers", "replications"):
        (tmp_path / folder).mkdir()
    (tmp_path / "papers" / "toy.toml").write_text(TOML)
    (tmp_path / "replications" / "toy.py").write_text(NOTEBOOK)
    return tmp_path


def seeds(project):
    known = shipped.facts(project / "figures" / "paper" / "toy")
    return sorted(each["seed"] for each in known.values())


def test_the_trials_of_the_plan_are_known_without_training(project):
    asked = settling.trials("toy", "paper")
    assert [(trial.seed, trial.rounds) for trial in asked] == [(0, 3), (1, 3), (2, 3)]
    assert papers.start("toy", {"tier": "paper"})[1].seeds == [0, 1]
    assert not list((project / ".fedclust").glob("cache/*"))
    half = settling.hours(papers.load("toy"), asked[:2], asked)
    assert half == pytest.approx(2 / 3)


def test_what_was_stopped_goes_on_from_what_was_shipped(project, monkeypatch, capsys):
    real, begun = sweeps.run, []

    def stopped(trials, *how, **more):
        begun.extend(trial.seed for trial in trials)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return real(trials, *how, **more)

    monkeypatch.setattr(settling.sweeps, "run", stopped)
    assert cli.main(["settle", "toy", "--jobs", "1"]) == cli.INTERRUPTED
    assert seeds(project) == [0] and begun == [0, 1]
    shutil.rmtree(project / ".fedclust")  # another machine
    assert cli.main(["settle", "toy", "--jobs", "1"]) == 0
    assert seeds(project) == [0, 1, 2] and begun == [0, 1, 1, 2]
    said = capsys.readouterr().err
    assert "1 of 3 trials are there, the rest takes about 0.7 processor hours" in said
    assert "shipped = " not in (project / "papers" / "toy.toml").read_text()
    page = json.loads((figures() / "paper" / "toy" / "verdicts.json").read_text())
    assert page["seeds"] == [0, 1, 2]


def test_a_trial_that_fails_is_named_and_the_rest_is_shipped(project, capsys):
    many = "{'kind': 'iid', 'clients': 1000 if s == 1 else 2}"
    broken = NOTEBOOK.replace("Trial(base, s,", f"Trial(base | {{'partition': {many}}}, s,")
    (project / "replications" / "toy.py").write_text(broken)
    assert cli.main(["settle", "toy", "--jobs", "1"]) == 1
    assert "toy: 1 of 1 trials failed" in capsys.readouterr().err
    assert seeds(project) == [0]


def test_time_over_is_no_failure(project, monkeypatch, capsys):
    def slow(*_, **more):
        import time

        time.sleep(60)

    monkeypatch.setattr(settling.sweeps, "run", slow)
    assert cli.main(["settle", "toy", "--hours", "0.0005"]) == 0
    assert "hours are over; the same command goes on" in capsys.readouterr().err


def test_drawing_never_trains(project, monkeypatch):
    monkeypatch.setenv("FEDCLUST_SHIPPED", "use")
    with pytest.raises(notebooks.NotebookFailed) as error:
        notebooks.execute("toy", {"tier": "paper"}, project / "out", print)
    assert "2 of 2 trials are not shipped (FedAvg seed 0, FedAvg seed 1, ...)" in str(error.value)
    assert "`fedclust settle toy` trains them" in str(error.value)
    assert not list((project / ".fedclust").glob("cache/*"))


def test_fewer_seeds_than_planned_are_said(project):
    monkey = {"tier": "paper"}
    paper, p = papers.start("toy", monkey)
    table = paper.settings_table("paper").set_index("setting")
    assert table.loc["rounds", "here (paper)"] == "2"
    assert table.loc["rounds", "note"].endswith("planned: 3")
    with pytest.raises(papers.PaperError, match="number = 4: the setting seeds has 3"):
        file = project / "papers" / "toy.toml"
        file.write_text(TOML.replace("number = 3", "number = 4"))
        papers.load("toy")
    assert p.seeds == [0, 1]
    report = Report(paper, p)
    report.judge(pd.DataFrame({"accuracy": [0.5, 0.6]}, index=[0, 1]))
    assert report.verdicts[0]["remark"] == "2 of 3 planned seeds"
    p.values["seeds"] = [0, 1, 2]
    report.judge(pd.DataFrame({"accuracy": [0.5, 0.6, 0.7]}))
    assert report.verdicts[0]["remark"] == ""


def test_damaged_records_are_named_and_stay(project, capsys):
    assert cli.main(["settle", "toy", "--jobs", "1"]) == 0
    record = figures() / "paper" / "toy" / "records.parquet"
    record.write_bytes(record.read_bytes()[:-9])
    before = record.read_bytes()
    assert cli.main(["settle", "toy", "--jobs", "1"]) != 0
    assert "`git restore` both" in capsys.readouterr().err
    assert record.read_bytes() == before
