"""Parts of a user's own by dotted path, in worker processes too; their files are in the key."""

import pytest

from fedclust.experiments import Trial, own, sweep
from fedclust.report import papers
from fedclust.report.report import Report
from tests.experiments.test_sweeps import SETTINGS, reasons, same

MINE = """
from torch import nn
from fedclust import datasets, partition
from fedclust.algorithms import FedAvg
from helpers import width

def net(shape, classes, hidden=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width(hidden)), nn.ReLU(),
                         nn.Linear(width(hidden), classes))

def halves(data, clients, seed=0):
    return partition.iid(data, clients // 2, seed=seed)

def images(n):
    return datasets.load("glyphs", n=n, n_test=50)

class Slow(FedAvg):
    "Half a step."
    def step(self, state, fed, seed, t):
        new, info = super().step(state, fed, seed, t)
        return new._replace(models=(new.models + state.models) / 2), info
"""
HELPERS = "def width(hidden):\n    return hidden\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "helpers.py").write_text(HELPERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trial(**changes):
    settings = {
        **SETTINGS,
        "data": {"name": "mine.images", "n": 200},
        "partition": {"kind": "mine.halves", "clients": 4},
        "model": {"kind": "mine.net", "hidden": 6},
        "method": {"kind": "mine.Slow"},
        "rounds": 2,
    }
    return Trial(settings | changes, 0)


def test_all_four_parts_run_in_a_worker_and_in_this_process(folder):
    trials = [trial(), trial(method={"kind": "FedAvg"})]
    apart = sweep(trials, 1, folder=folder / "worker")
    same(apart, sweep(trials, 1, "sequential", folder=folder / "here"))
    slow, usual = (part for _, part in apart.groupby("algorithm", observed=True))
    assert set(apart.algorithm.astype(str)) == {"Slow", "FedAvg"}
    assert slow.client.max() == usual.client.max() == 1


def test_an_edited_file_runs_again_and_is_named(folder):
    def go():
        return sweep([trial()], 1, folder=folder / "cache")

    records, texts = [go()], {}
    assert reasons(go())[0][0] is True
    for file, old, new in (
        ("mine.py", "/ 2), info", "/ 3), info"),
        ("helpers.py", "hidden\n", "hidden + 1\n"),
    ):
        path = folder / file
        texts[path] = path.read_text() + "\n# a remark\n"
        path.write_text(texts[path])
        assert reasons(go())[0][0] is True
        assert old in texts[path]
        path.write_text(texts[path].replace(old, new))
        records.append(go())  # the same worker, which has imported the old file
        assert reasons(records[-1]) == [(False, f"changed: {file}")]
        assert not records[-2].value.equals(records[-1].value)
    for path, text in texts.items():
        path.write_text(text)
    same(records[0], go())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"kind": "mein.net"}}, "model 'mein.net': no module 'mein' is in"),
        ({"model": {"kind": "mine.nett"}}, "model 'mine.nett': .*mine.py has no 'nett'"),
        ({"partition": {"kind": "helpers.all"}}, "partition 'helpers.all': .* has no 'all'"),
        ({"method": {"kind": "broken.X"}}, "method 'broken.X': broken cannot be imported .*name"),
        ({"data": {"name": "mine.none"}}, "data set 'mine.none': .*mine.py has no 'none'"),
    ],
)
def test_a_wrong_path_is_named_before_anything_is_trained(folder, changes, message):
    (folder / "broken.py").write_text("undefined\n")
    with pytest.raises(ValueError, match=message) as error:
        sweep([trial(**changes)], 1, "sequential", folder=folder / "cache")
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
    assert not list(folder.glob("cache/*/*"))


def test_a_papers_data_may_be_ones_own():
    assert papers.start("dcfl", {"tier": "smoke", "data": "mine.letters"})[1].data == "mine.letters"
    for wrong in ("mnst", "mine.", "a b.c", ".mine", "mine.letters()"):
        with pytest.raises(papers.PaperError, match="allowed are"):
            papers.start("dcfl", {"tier": "smoke", "data": wrong})


def test_ones_own_model_and_split_replace_those_of_every_trial(folder):
    parts = {"model": "mine.net", "partition": "mine.halves"}
    usual = Trial(
        {**SETTINGS, "model": {"kind": "mlp", "hidden": [6], "depth": 1}}, 0, "A", {"x": 1}
    )
    mine = own.with_parts(usual, parts)
    assert mine.settings["model"] == {"hidden": [6], "kind": "mine.net"}  # it does not name `depth`
    assert mine.settings["partition"] == {"clients": 4, "kind": "mine.halves"}
    assert (mine.seed, mine.label, mine.tags) == (0, "A", {"x": 1})
    labels = Trial({"classes": 3}, 0, task="iid_found")  # neither model nor clients
    assert own.with_parts(labels, parts) == labels


def test_a_notebook_takes_a_model_and_a_split_by_dotted_path(folder, monkeypatch):
    paper, p = papers.start(
        "cafa", {"tier": "smoke", "model": "mine.net", "partition": "mine.halves"}
    )
    assert p.changed == {"model": "mine.net", "partition": "mine.halves"}
    with_module = {"tier": "smoke", "partition": own}  # a notebook may import one of that name
    assert papers.start("cafa", with_module)[1].changed == {}
    for wrong in ("resnet", "mine.", 7):
        with pytest.raises(papers.PaperError, match=r"like 'mine\.model'"):
            papers.start("cafa", {"tier": "smoke", "model": wrong})
    monkeypatch.setenv("FEDCLUST_ROOT", str(folder))
    report, settings = Report(paper, p), trial().settings
    usual = {"model": {"kind": "mlp", "hidden": [8]}, "partition": {"kind": "iid", "clients": 4}}
    usual = Trial(settings | usual | {"model": {"kind": "mlp", "hidden": 6}}, 0, "FedAvg")
    record = report.sweeps({"runs": [usual]})["runs"]
    assert record.client.max() == 1 and "build" in str(
        report.folder
    )  # two clients in place of four
