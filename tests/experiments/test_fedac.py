"""FedAC's forced splits."""

import pandas as pd
import pytest
import torch

from fedclust.experiments import Trial, alter, sweep
from fedclust.experiments.tasks.fedac import forced
from fedclust.experiments.tasks.train import train
from fedclust.experiments.together import families
from fedclust.fast.sharing import Results

BASE = {
    "data": {"name": "glyphs", "n": 600, "n_test": 60},
    "partition": {"kind": "class_groups", "clients": 12, "groups": 2},
    "model": {"kind": "mlp", "hidden": [8]},
    "train": {"lr": 0.1, "batch": 10, "steps": 2},
    "rounds": 4,
}


@pytest.mark.parametrize("at", [0, 2])
def test_a_forced_split_is_what_fedac_does_when_its_gates_open_in_that_round(at: int):
    fedac = {"kind": "FedAC", "fraction": 0.5}
    found = forced(BASE | {"method": fedac, "asked": [0, at]}, seed=1)
    free = fedac | {"alpha": torch.inf, "beta": 2.0, "warmup": at}
    run = train(BASE | {"method": free, "rounds": at + 1}, seed=1)
    end = run[run["round"] == at].set_index("metric").value
    mine = found[found["round"] == at].set_index("metric").value
    assert end["clusters"] == 2 and mine["ari"] == end["ari"]
    clients = run[(run["round"] == at) & (run.metric == "accuracy")]
    most = clients.groupby(["group", "cluster"]).size().groupby("group").max().sum()
    assert mine["kept"] == most / 12


def test_forced_splits_share_fedavgs_rounds_with_trials_beside_them(tmp_path, monkeypatch):
    fedac = {"kind": "FedAC", "fraction": 0.5}
    trials = [
        Trial(BASE | {"method": fedac, "asked": [0, 3]}, 1, task="forced"),
        Trial(BASE | {"method": {"kind": "FedAvg", "fraction": 0.5}}, 1),
    ]
    apart = [sweep([trial], 1, "sequential", folder=tmp_path / "apart") for trial in trials]
    seen, real = [], Results.__setitem__
    monkeypatch.setattr(Results, "__setitem__", lambda *a: seen.append(a[1][0]) or real(*a))
    beside = [sweep(trials, 1, "sequential", folder=tmp_path / "beside"), *apart]
    assert (
        seen.count("LocalSGD.__call__") == 4 + 2
    )  # every round of FedAvg, and the rest of both splits
    pd.testing.assert_frame_equal(
        *(frame.astype(str) for frame in (beside[0], pd.concat(apart, ignore_index=True)))
    )


def test_what_can_share_goes_together_and_the_longest_federation_first():
    fedac, fedavg = ({"kind": kind, "fraction": 0.5} for kind in ("FedAC", "FedAvg"))
    few = Trial(alter(BASE, {"method": fedavg, "partition.groups": 3}), 0)
    usual = [
        Trial(BASE | {"method": fedavg}, 0),
        Trial(BASE | {"method": fedac, "rounds": 2}, 0),
        Trial(BASE | {"method": fedac, "asked": [1]}, 0, task="forced"),
    ]
    alone = Trial(BASE | {"method": {"kind": "LocalOnly"}}, 0)
    assert families([few, alone, *usual]) == [[alone], usual, [few]]
