"""The bench's task: its few rows are those of a whole run."""

import pandas as pd
import pytest
import torch

from fedclust.experiments import Trial, build
from fedclust.experiments.tasks.compare import Move, bench
from fedclust.simulation import run

BASE = {
    "data": {"name": "glyphs", "n": 240, "n_test": 80},
    "partition": {"kind": "rotated_groups", "clients": 8, "validation": 0.2},
    "model": {"kind": "mlp", "hidden": [8]},
    "train": {"lr": 0.1, "batch": 10, "steps": 2},
    "method": {"kind": "FedAvg"},
    "rounds": 6,
    "eval_every": 2,
}


def trial(**changes):
    return Trial(BASE | changes, 3, task="bench").settings


def of(record, metric):
    return record[record.metric == metric].value


def test_the_rows_are_those_of_a_run():
    fed, model, method = build.everything(BASE, 3)
    whole = run(method, fed, model, rounds=6, seed=3, eval_every=2)
    brief = bench(trial(), 3)
    ends = whole[whole["round"] == 5]
    assert of(brief, "accuracy").tolist() == of(ends, "accuracy").tolist()
    assert of(brief, "bytes").tolist() == [of(whole, "bytes").sum()]
    means = of(whole, "accuracy").groupby(whole["round"]).mean()
    assert brief[brief.metric == "mean"]["round"].tolist() == [0, 2, 4, 5]
    assert of(brief, "mean").tolist() == pytest.approx(means.tolist())


def test_a_method_of_single_steps_has_more_rounds_on_the_same_axis():
    joint = {"method": {"kind": "Joint", "k": 2}, "train": {"lr": 0.1, "batch": 10}, "pace": 2}
    brief = bench(trial(**joint), 3)
    assert brief[brief.metric == "mean"]["round"].tolist() == [0, 2, 4, 5]
    models = 12 * 8 * 3  # 12 steps of 8 clients, two models down and one up
    size = build.everything(BASE, 3)[1].size * 4
    assert of(brief, "bytes").tolist() == [models * size]


def test_only_honest_clients_are_scored():
    poison = {"partition": {"kind": "poisoned", "clients": 6}, "honest": True}
    brief = bench(trial(**poison), 3)
    assert brief[brief.metric == "accuracy"].client.tolist() == [0, 1, 2, 3]


def test_clients_join_and_move():
    brief = bench(trial(changes=2, method={"kind": "Oracle"}), 3)
    assert len(of(brief, "accuracy")) == 8 and of(brief, "ari").tolist() == [1.0]
    fed = build.federation(BASE, 3)
    moved = Move(4)(fed, 3)
    (who,) = (moved.group != fed.group).nonzero()[:, 0].tolist()
    assert moved.group[who] == (fed.group[who] + 1) % 4
    for half in ("train", "val", "test"):
        before, now = fed.half(half)[0], moved.half(half)[0]
        assert now[who].equal(before[who].rot90(1, (-2, -1)))
        others = torch.arange(8) != who
        assert now[others].equal(before[others])


@pytest.mark.parametrize(("steps", "rounds"), [(2, 2), (4, 0)])  # FedProx's pull overshoots
def test_a_run_that_diverges_counts_as_nothing_right(steps, rounds):
    proximal = {"kind": "FedProx", "mu": 1e15}
    brief = bench(trial(method=proximal, train={"lr": 0.1, "batch": 10, "steps": steps}), 3)
    assert of(brief, "accuracy").tolist() == [0.0] * 8
    assert brief[brief.metric == "mean"].iloc[-1][["round", "value"]].tolist() == [5, 0.0]
    assert of(brief, "ari").tolist() == [0.0] and of(brief, "clusters").tolist() == [1.0]
    models = 2 * 8 * rounds  # of the rounds that ended
    assert of(brief, "bytes").tolist() == [models * build.everything(BASE, 3)[1].size * 4]


def test_a_stopped_run_goes_on(tmp_path):
    settings, path = trial(changes=2, method={"kind": "FineTuned", "epochs": 1}), tmp_path / "c"

    def stop(done, rounds):
        if done == 3:
            raise KeyboardInterrupt

    whole = bench(settings, 3)
    with pytest.raises(KeyboardInterrupt):
        bench(settings, 3, stop, str(path))
    pd.testing.assert_frame_equal(bench(settings, 3, checkpoint=str(path)), whole)
