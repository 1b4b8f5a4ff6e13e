"""CAFA's measurements against what they must agree with, and the paper's own size for one round."""

import pandas as pd
import pytest
import torch

from fedclust import partition
from fedclust.algorithms import CAFA, cafa
from fedclust.experiments import build
from fedclust.experiments.tasks import cafa as tasks
from fedclust.experiments.tasks.train import train
from fedclust.report.readings import smoothed

LABELS = {"classes": 10, "each": 500, "generator": "code"}
SETTINGS = {
    "data": {"name": "glyphs", "color": True, "n": 500, "n_test": 20, "first": [400, 20]},
    "partition": {"kind": "iid_mix", "iid": 0, "other": 6, "validation": 0.2},
    "model": {"kind": "mlp", "hidden": [8]},
    "train": {"lr": 0.05},
    "method": {"kind": "CAFA", "fraction": 0.5, "clusters": 2},
    "rounds": 2,
}


def test_iid_clients_are_scored_by_the_book():
    record = tasks.iid_found(LABELS | {"cases": [[5, 15]], "clusters": [1]}, 0)
    scores = record[record.metric != "silhouette"].set_index(["asked", "metric"]).value
    # one cluster: everybody counts as IID, 5 of 20 rightly
    assert scores[1].tolist() == [0.25, 0.25, 1.0, pytest.approx(0.4)]
    counts, group = partition.iid_mix_counts(
        torch.arange(10).repeat_interleave(500), 5, 15, generator="code", seed=0
    )
    found = cafa.iid(cafa.cbcc(counts / counts.sum(1, keepdim=True), seed=0))
    assert scores[0]["accuracy"] == (found == (group == 0)).double().mean()
    curve = record[record.metric == "silhouette"].set_index("k").value
    assert record[record.asked == 0].iloc[-1].k == curve.idxmax() and set(curve.index) == set(
        range(2, 20)
    )


def test_weights_are_those_of_the_method():
    record = tasks.weighing(SETTINGS, 3)
    fed = build.federation(SETTINGS, 3)
    assert (
        len(fed.sizes) == 6 and 300 < fed.sizes.sum() < 330
    )  # four fifths of the first 400 of 500 images
    model = build.network(SETTINGS, fed)
    algorithm = build.method(SETTINGS, model)
    assert isinstance(algorithm, CAFA)
    state = algorithm.init(model.init(3), fed, 3)
    for t in range(2):
        chosen = algorithm.choose(state, fed, 3, t)
        theta = algorithm.train(state.models[state.labels[chosen]], fed, chosen, 3, t)
        weights = algorithm.weigh(state, theta, fed, chosen)
        rows = record[(record["round"] == t) & (record.metric == "CAFA")]
        assert rows.client.tolist() == fed.ids[chosen].tolist()
        assert rows.value.tolist() == pytest.approx((weights / weights.sum()).tolist())
        state, _ = algorithm.step(state, fed, 3, t)
    assert len(record) == 2 * (3 * 3 + 3 * 3)


def test_smoothing_by_hand():
    # two steps of half the axis, scale 2: w = sqrt(0.25) = 1/2 per step
    # 1; (1/2 + 3) / (1/2 + 1) = 7/3; (1/4 + 3/2 + 5) / (1/4 + 1/2 + 1) = 27/7
    frame = pd.DataFrame([[1.0, 3.0, 5.0]], columns=[0, 10, 20])
    assert smoothed(frame, 0.25, 2.0).iloc[0].tolist() == pytest.approx([1, 7 / 3, 27 / 7])
    assert smoothed(frame, 0.0).equals(frame)
    assert smoothed(frame * 0 + 4, 0.9).iloc[0].tolist() == [4, 4, 4]


def test_the_papers_own_size_runs_its_first_round():
    wide = {
        "data": {"name": "glyphs", "color": True, "n": 40, "n_test": 20},
        "partition": {
            "kind": "iid_mix",
            "iid": 0,
            "other": 6,
            "classes_per_client": [2, 4],
            "validation": 0.2,
        },
        "model": {"kind": "vgg19", "width": 1.0},
        "train": {"lr": 0.1, "epochs": 1, "batch": 32, "augment": "crop_flip", "device": "cpu"},
        "method": {"kind": "CAFA", "fraction": 0.34},
        "rounds": 1,
    }
    record = train(SETTINGS | wide, 0)
    assert record.attrs["numbers"] > 20_565_834  # the batch norms' statistics travel too
    assert record[record.metric == "accuracy"].value.between(0, 1).all()
    sent = record[record.metric == "down"].value.item()
    assert sent == 2 + 2  # two clients receive the model and each the other's
