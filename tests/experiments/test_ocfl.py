"""OCFL's smaller measurements: oracles, and limiting cases that agree with the method."""

import pytest
import torch
from sklearn.cluster import OPTICS

from fedclust.algorithms.ocfl import cluster_parameters, coordinates
from fedclust.experiments import build
from fedclust.experiments.tasks import ocfl
from fedclust.experiments.tasks.train import train
from fedclust.geometry import cosine, gaps
from fedclust.rng import stream

OPTICS_2 = {"kind": "OPTICS", "min_samples": 2, "xi": 0.1}
BASE = {
    "data": {"name": "glyphs", "n": 1000, "n_test": 10},
    "partition": {"kind": "label_slices", "clients": 20, "slices_per_client": 1, "holdout": 0.2},
    "model": {"kind": "mlp", "hidden": [8]},
    "train": {"lr": 0.05, "batch": 10},
    "rounds": 2,
}
OCFL = {"kind": "OCFL", "fraction": 0.5, "estimator": OPTICS_2}


def values(record, metric, **where):
    rows = record[record.metric == metric]
    for name, wanted in where.items():
        rows = rows[rows[name] == wanted]
    return rows.value.tolist()


def test_stretched_steps_lead_as_far():
    # from rest with momentum 1/2 the steps are 1, 3/2, 7/4, ...: one of 2.5 leads as far as 1 + 3/2
    assert build.stretched(0.1, 0.5, full=2, steps=1) == pytest.approx(0.25)
    assert build.stretched(0.1, 0.0, full=48, steps=3) == pytest.approx(1.6)
    assert build.stretched(0.1, 0.9, full=7, steps=7) == 0.1


def test_coordinates_keep_lengths_angles_and_clusters():
    rows = torch.randn(12, 500, generator=stream(0, "rows"))
    rows[6:] += 3
    few = coordinates(rows)
    assert few.shape == (12, 12)
    torch.testing.assert_close(gaps(few), gaps(rows.double()))
    torch.testing.assert_close(cosine(few), cosine(rows.double()))
    whole = OPTICS(min_samples=2, xi=0.1).fit_predict(rows.double().numpy())
    mine = cluster_parameters(rows, OPTICS(min_samples=2, xi=0.1))
    for a in range(12):
        for b in range(12):
            assert (mine[a] == mine[b]) == (a == b or whole[a] == whole[b] >= 0)
    assert coordinates(rows[:, :5]).shape == (12, 5)


def test_alone_clusters_what_ocfl_clusters():
    estimators = {"one": OPTICS_2, "all": {"kind": "KMeans", "n_clusters": 1}}
    record = ocfl.alone(BASE | {"estimators": estimators, "epochs": 2}, 0)
    assert values(record, "ari", algorithm="all") == [0, 0]  # one cluster knows nothing
    assert values(record, "found", algorithm="all") == [1, 1]
    run = train(BASE | {"method": OCFL}, 0)
    (found,), (noise,) = (
        values(record, metric, algorithm="one", round=1) for metric in ("found", "noise")
    )
    assert values(run, "found", round=0) == [found + noise]
    assert values(run, "noise", round=0) == [noise]
    assert values(run, "ari", round=0) == values(record, "ari", algorithm="one", round=1)


@pytest.mark.parametrize("attack", ["noise", "flip", "labels"])
def test_an_attack_leaves_the_honest_as_they_are(attack):
    each = {
        "each": {"kind": "KMeans", "n_clusters": 20},
        "all": {"kind": "KMeans", "n_clusters": 1},
    }
    record = ocfl.alone(
        BASE | {"estimators": each, "epochs": 1, "attack": attack, "poisoned": 0.2}, 0
    )
    assert values(record, "apart", algorithm="each") == [1] and values(
        record, "lost", algorithm="each"
    ) == [1]
    assert values(record, "apart", algorithm="all") == [0] and values(
        record, "lost", algorithm="all"
    ) == [0]


def test_restricted_to_all_labels_is_fedavg():
    one = {"method": OCFL | {"merge": 1}}
    last = train(BASE | {"method": {"kind": "FedAvg", "fraction": 0.5}}, 0)
    free = values(last, "accuracy", round=1)
    assert values(ocfl.restricted(BASE | one, 0), "accuracy") == pytest.approx(free)
    told = values(ocfl.restricted(BASE | {"method": OCFL}, 0), "accuracy")
    assert all(
        b >= a - 1e-6 for a, b in zip(free, told, strict=True)
    )  # fewer wrong answers to give
    assert sum(told) > sum(free)


def test_alignment_starts_alike_and_parts():
    alone = ocfl.alignment(BASE | {"method": {"kind": "LocalOnly"}}, 0)
    together = ocfl.alignment(BASE | {"method": {"kind": "FedAvg"}}, 0)
    for metric in alone.metric.unique():
        assert values(alone, metric, round=0) == values(
            together, metric, round=0
        )  # nothing is averaged yet
    assert values(alone, "parameters, different", round=1) < values(
        alone, "parameters, different", round=0
    )
    assert values(alone, "parameters, same", round=1) > values(
        alone, "parameters, different", round=1
    )
