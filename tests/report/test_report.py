"""The report: what it writes, what it refuses, and that nothing of the paper is forgotten."""

import io
import json
import tomllib

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from fedclust.report import papers, report, tables
from tests.report.test_papers import TOML


@pytest.fixture
def rep(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCLUST_FIGURES", str(tmp_path))
    paper = papers.check(tomllib.loads(TOML), "toy.toml")
    return report.Report(paper, parameters())


def parameters(**changed):
    how = {"tier": "quick", "seeds": [0, 1, 2], "jobs": 1, "backend": "loky"}
    return papers.Parameters({**how, "epsilon": 5.0, **changed}, changed)


def draw(value=1.0):
    fig, ax = plt.subplots()
    ax.plot([0, value])
    return fig


def frames(a=0.7):
    return pd.DataFrame({("A", "mean"): [a, a + 0.01, a + 0.02]}, index=[0, 1, 2])


MEASURES = pd.DataFrame({"a": [0.70, 0.71, 0.72], "b": [0.60, 0.605, 0.62]})


def whole(rep):
    rep.figure("fig1", draw())
    rep.compare("table1", frames())
    rep.judge(MEASURES)
    rep.close()


def test_a_static_table_names_its_file_not_a_run(rep):
    rep.static("table1")
    footer = rep.files["table1.md"].decode().splitlines()[-1].strip("*")
    assert footer.endswith(".toml") and "seed" not in footer and "tier" not in footer


def test_everything_is_written(rep):
    whole(rep)
    made = {path.name for path in rep.folder.iterdir()}
    assert made == {
        "fig1.svg",
        "fig1.png",
        "table1.csv",
        "table1.md",
        "verdicts.json",
        "run.json",
        "measures.csv",
    }
    verdicts = json.loads((rep.folder / "verdicts.json").read_text())
    assert verdicts["claims"][0]["verdict"] == "reproduced"
    about = json.loads((rep.folder / "run.json").read_text())
    assert about["host"]["processor"]
    assert about["seeds"] == [0, 1, 2] and about["versions"]["torch"]


def test_same_results_same_bytes(rep, tmp_path, monkeypatch):
    whole(rep)
    monkeypatch.setenv("FEDCLUST_FIGURES", str(tmp_path / "again"))
    again = report.Report(rep.paper, parameters())
    whole(again)
    for path in rep.folder.iterdir():
        if path.name != "run.json":
            assert path.read_bytes() == (again.folder / path.name).read_bytes(), path.name


def test_an_unknown_backend_is_refused_before_anything_is_trained(rep):
    rep.p.values["backend"] = "slurm"
    with pytest.raises(papers.PaperError, match="backend = 'slurm': allowed are loky, ray"):
        report.Report(rep.paper, rep.p)


@pytest.mark.parametrize("forgotten", ["figure", "compare", "judge"])
def test_nothing_can_be_forgotten(rep, monkeypatch, forgotten):
    monkeypatch.setattr(rep, forgotten, lambda *a: None)
    with pytest.raises(
        RuntimeError, match={"figure": "fig1", "compare": "table1", "judge": "verdicts"}[forgotten]
    ):
        whole(rep)


def test_compare_has_the_papers_layout_and_keeps_every_number(rep):
    rep.compare("table1", frames(0.8))
    row = pd.read_csv(io.BytesIO(rep.files["table1.csv"])).iloc[0]
    # 0.80, 0.81, 0.82: mean 0.81, half width 4.3027 * 0.01 / sqrt(3) = 0.0248
    assert (row["paper"], row["seeds"]) == (0.7, 3)
    assert row[["ours", "low", "high"]].tolist() == pytest.approx([0.81, 0.7852, 0.8348], abs=1e-4)
    said = rep.files["table1.md"].decode()
    assert "| paper / ours | mean |" in said and "| A | 0.7 / 0.810 [0.785, 0.835] |" in said


def test_a_row_that_was_not_run_says_so(rep):
    with pytest.warns(UserWarning, match=r"\['A'\] not run, \['B'\] not in the paper: misspelt"):
        rep.compare("table1", pd.DataFrame({("B", "mean"): [0.5]}, index=[0]))
    said = rep.files["table1.md"].decode()
    assert "| A | 0.7 / not run |" in said and "| B | 0.500 |" in said


def test_changed_parameters_never_touch_the_tiers_results(rep, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "root", lambda: tmp_path)
    changed = report.Report(rep.paper, parameters(epsilon=2.0))
    assert tmp_path / "build" in changed.folder.parents
    assert "epsilon = 2" in changed.source()


@pytest.mark.parametrize(
    ("changed", "folder"),
    [
        ({"epsilon": 2.5}, "changed-epsilon-2.5"),
        ({"epsilon": 2.0, "data": "mine.letters"}, "changed-data-mine.letters-epsilon-2"),
        ({"hidden": [64, 32]}, "changed-hidden-_64_32_"),
    ],
)
def test_a_folder_says_what_was_changed(rep, changed, folder):
    assert report.Report(rep.paper, parameters(**changed)).label == folder


def test_folders_of_long_changes_stay_apart(rep):
    labels = [
        report.Report(rep.paper, parameters(data=f"{'far.' * 20}{end}")).label for end in "ab"
    ]
    assert labels[0] != labels[1] and max(map(len, labels)) < 80


def test_only_what_shows_all_seeds_says_how_many_are_planned(rep, monkeypatch):
    monkeypatch.setattr(report.Report, "planned", "2 of 5 planned seeds")
    rep.rounds |= {30, 100}
    assert rep.source() == "toy · tier quick · 2 of 5 planned seeds · 30 to 100 rounds · no data"
    rep.seeds = rep.p.seeds[:1]  # what comes next has fewer
    assert rep.source() == "toy · tier quick · 1 seed · 30 to 100 rounds · no data"
    assert rep.source([]) == "toy · tier quick · no data"


def test_stand_in_data_is_said_everywhere(rep):
    rep.data["glyphs"] = {"source": "", "sha256": "", "stand_in": "emnist"}
    assert "STAND-IN for emnist" in rep.source()
    rep.data["mnist"] = {"source": "", "sha256": "", "stand_in": None}
    assert rep.source([0]) == "toy · tier quick · 1 seed · glyphs (STAND-IN for emnist), mnist"
    assert rep.source([0], "mnist").endswith("1 seed · mnist")
    assert rep.source([0], "emnist").endswith("1 seed · glyphs (STAND-IN for emnist)")
    assert rep.source([0], "cifar10") == rep.source([0])  # smoke: what it would show is not there
    rep.judge(MEASURES)
    assert "stand-in data: glyphs for emnist" in rep.verdicts[0]["remark"]


@pytest.mark.parametrize(
    ("a", "b", "verdict", "said"),
    [
        ([0.70, 0.71, 0.72], [0.60, 0.605, 0.62], "reproduced", ""),
        ([0.60, 0.601, 0.602], [0.60, 0.605, 0.62], "not reproduced", "B is 0.608 [0.582, 0.634]."),
        ([0.40, 0.41, 0.42], [0.30, 0.305, 0.32], "reproduced", "B is 0.308 [0.282, 0.334]."),
    ],
    ids=["holds", "does not hold", "holds outside the regime"],
)
def test_why_is_said_where_a_claim_does_not_hold_as_printed(rep, a, b, verdict, said):
    rep.paper.claims["c1"]["because"] = "B is\n{b}."
    rep.judge(pd.DataFrame({"a": a, "b": b}))
    (claim,) = rep.verdicts
    assert (claim["verdict"], claim["because"]) == (verdict, said)
    assert json.loads(rep.files["verdicts.json"])["claims"][0]["because"] == said


def test_nothing_but_a_tiers_own_complete_run_writes_into_its_folder(rep, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "root", lambda: tmp_path / "project")
    monkeypatch.setenv("FEDCLUST_LABEL", str(tmp_path / "label"))
    own = tmp_path / "quick" / "toy"
    rep.figure("fig1", draw())
    assert not list(own.iterdir())  # not before everything is there
    few = report.Report(rep.paper, papers.Parameters({**rep.p.values, "seeds": [0, 1]}))
    changed = report.Report(rep.paper, parameters(device="cuda"))
    stood_in = report.Report(rep.paper, parameters())
    stood_in.data["mnist"] = {"source": "", "sha256": "", "stand_in": "emnist"}
    for other in (few, changed, stood_in):
        whole(other)
        assert tmp_path / "project" / "build" in other.folder.parents
        assert (other.folder / "run.json").exists()
        assert other.label == (tmp_path / "label").read_text() != ""
    assert not list(own.iterdir())
    more = report.Report(rep.paper, papers.Parameters({**rep.p.values, "seeds": [0, 1, 2, 3]}))
    whole(more)
    assert (own / "run.json").exists()
    assert (tmp_path / "label").read_text() == ""


@pytest.mark.parametrize(("kind", "name"), [("figure", "fig7"), ("table", "table7")])
def test_what_the_paper_does_not_have_is_named_extra(rep, kind, name):
    thing = draw() if kind == "figure" else frames()
    with pytest.raises(ValueError, match=f"'{name}'.*-extra-"):
        getattr(rep, kind)(name, thing, "a caption")
    getattr(rep, kind)(f"{'fig' if kind == 'figure' else 'table'}-extra-ours", thing, "a caption")


def test_markdown_cells():
    frame = pd.DataFrame({"x": [1.23456, None, 1256.6, 3.0], "y": ["a|b", "c\nd", 2, 1.5e-6]})
    assert tables.markdown(frame.astype(object)).splitlines() == [
        "| x | y |",
        "| --- | --- |",
        "| 1.23 | a\\|b |",
        "|  | c d |",
        "| 1,257 | 2 |",
        "| 3 | 1.5e-06 |",
    ]
