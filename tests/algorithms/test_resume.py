"""Every method goes on after a stop as if nothing had been."""

from math import inf
from pathlib import Path

import pandas as pd
import pytest

from fedclust import algorithms, record
from fedclust.algorithms import catalogue
from fedclust.models import mlp
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.toy import easy_federation

MODEL = mlp((1, 4, 4), 4, hidden=(8,))
EAGER = {
    "fraction": 0.5,
    "alpha": inf,
    "reading": "pairwise",
}  # splits before the stop and leaves clients to place
SETTINGS: dict[str, dict] = {"FedAC": EAGER, "FedACP": EAGER}


def test_the_catalogue_names_every_method():
    listed = {method["name"]: method for method in catalogue()}
    assert {
        "FedAvg",
        "FedProx",
        "CFL",
        "DCFL",
        "OCFL",
        "FedAC",
        "FedACP",
        "IFCA",
        "Joint",
        "CBCC",
        "ABFA",
        "CAFA",
    } <= set(listed)
    assert (
        listed["FedAC"]["parameters"]["alpha"] == 5.0 and "Algorithm 2" in listed["FedAC"]["paper"]
    )
    assert "lam" not in listed["IFCA"]["parameters"] and listed["Joint"]["parameters"]["lam"] == 0.2


@pytest.mark.parametrize("name", [method["name"] for method in catalogue()])
def test_a_stopped_run_goes_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", -1.0)  # after every round
    fed, train = easy_federation(2, 6, 0, samples=16), LocalSGD(MODEL, lr=0.1, batch=8)
    algorithm = getattr(algorithms, name)(train, **SETTINGS.get(name, {}))

    def stop(t: int, rounds: int) -> None:
        if t == 4:
            raise KeyboardInterrupt

    whole = run(algorithm, fed, MODEL, rounds=8, seed=0)
    if name in SETTINGS:
        assert whole[(whole.metric == "splits") & (whole["round"] < 4)].value.sum() >= 1
    with pytest.raises(KeyboardInterrupt):
        run(algorithm, fed, MODEL, rounds=8, seed=0, checkpoint=tmp_path / "stopped", progress=stop)
    trained = []
    monkeypatch.setattr(type(algorithm), "step", counted(type(algorithm).step, trained))
    again = run(algorithm, fed, MODEL, rounds=8, seed=0, checkpoint=tmp_path / "stopped")
    assert trained == [3, 4, 5, 6, 7]
    pd.testing.assert_frame_equal(whole, again, check_exact=True)


def counted(step, rounds: list[int]):
    def with_count(self, state, fed, seed, t):
        rounds.append(t)
        return step(self, state, fed, seed, t)

    return with_count
