"""FedAC's forced splits."""

import pytest
import torch

from fedclust.experiments import Trial, alter, studies
from fedclust.experiments.sweeps import Job, families

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
    found = studies.forced(BASE | {"method": fedac, "asked": [0, at]}, seed=1)
    free = fedac | {"alpha": torch.inf, "beta": 2.0, "warmup": at}
    run = studies.train(BASE | {"method": free, "rounds": at + 1}, seed=1)
    end = run[run["round"] == at].set_index("metric").value
    mine = found[found["round"] == at].set_index("metric").value
    assert end["clusters"] == 2 and mine["ari"] == end["ari"]
    clients = run[(run["round"] == at) & (run.metric == "accuracy")]
    most = clients.groupby(["group", "cluster"]).size().groupby("group").max().sum()
    assert mine["kept"] == most / 12


def test_what_can_share_goes_together_and_the_longest_federation_first():
    fedac, fedavg = ({"kind": kind, "fraction": 0.5} for kind in ("FedAC", "FedAvg"))
    few = Trial(alter(BASE, {"method": fedavg, "partition.groups": 3}), 0)
    usual = [
        Trial(BASE | {"method": fedavg}, 0),
        Trial(BASE | {"method": fedac, "rounds": 2}, 0),
        Trial(BASE | {"method": fedac, "asked": [1]}, 0, task="forced"),
    ]
    alone = Trial(BASE | {"method": {"kind": "LocalOnly"}}, 0)
    jobs = [Job(trial, None, "new", None) for trial in (few, alone, *usual)]
    assert [[job.trial for job in family] for family in families(jobs)] == [[alone], usual, [few]]
