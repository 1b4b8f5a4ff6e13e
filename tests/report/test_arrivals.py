"""When runs arrive at a goal, with runs that never do; records of means."""

import numpy as np
import pandas as pd

from fedclust import models
from fedclust.experiments.tasks import joint
from fedclust.experiments.tasks.train import train
from fedclust.report.drawings.joint import architecture
from fedclust.report.readings import arrivals, rounds_saved


def record():
    curves = {  # (algorithm, seed): accuracy by round
        ("base", 0): [0, 0, 0, 1], ("fast", 0): [1, 0, 0, 0],  # 4 rounds and 1: saves 3/4
        ("base", 1): [0, 1, 1, 1], ("fast", 1): [0, 0, 0, 0],  # 2, more than 4: at most -1
        ("base", 2): [0, 0, 0, 0], ("fast", 2): [0, 0, 1, 1],  # more than 4, 3: at least 1/4
        ("base", 3): [0, 0, 0, 0], ("fast", 3): [0, 0, 0, 0],  # nothing is known
    }  # fmt: skip
    rows = [
        (a, s, t, "accuracy", v) for (a, s), curve in curves.items() for t, v in enumerate(curve)
    ]
    return pd.DataFrame(rows, columns=["algorithm", "seed", "round", "metric", "value"])


def test_rounds_saved_takes_censored_runs_as_bounds():
    gain = rounds_saved(record(), "accuracy", 0.5, "base")
    assert gain.columns.tolist() == ["fast"]
    np.testing.assert_allclose(gain["fast"], [0.75, -1, 0.25, np.nan])


def test_arrivals_count_censored_runs_as_never():
    there = arrivals(record(), "accuracy", 0.5)
    assert there.loc["base"].tolist() == [2, 4, np.inf]
    assert there.loc["fast"].tolist() == [2, 4, np.inf]
    assert arrivals(record().query("seed < 2"), "accuracy", 0.5).loc["base", "rounds"] == 3


def test_averaged_is_train_over_clients():
    settings = {
        "data": {"name": "glyphs", "n": 400, "n_test": 100},
        "partition": {"kind": "class_groups", "clients": 4, "groups": 2},
        "model": {"kind": "mlp", "hidden": [4]},
        "train": {"lr": 0.1, "batch": 10},
        "method": {"kind": "Joint", "k": 2, "lam": 0.2},
        "rounds": 3,
    }
    whole, short = train(settings, 0), joint.averaged(settings, 0)
    assert short.attrs == whole.attrs
    assert len(short) == len(short[["round", "metric"]].drop_duplicates()) < len(whole)
    for metric in ("accuracy", "purity", "down"):
        mine, theirs = (r[r.metric == metric].groupby("round").value.mean() for r in (short, whole))
        np.testing.assert_allclose(mine, theirs)


def test_layers_as_tables_print_them():
    net = models.cnn((3, 32, 32), 8, (6, 16), 5, "each", (120, 84))
    assert architecture(net) == [
        ("conv 1", "3 -> 6, 5 x 5", 3 * 6 * 25 + 6), ("max pooling 1", "2 x 2", 0),
        ("conv 2", "6 -> 16, 5 x 5", 6 * 16 * 25 + 16), ("max pooling 2", "2 x 2", 0),
        ("hidden 1", "120", 400 * 120 + 120), ("hidden 2", "84", 120 * 84 + 84),
        ("output", "8", 84 * 8 + 8),
    ]  # fmt: skip
    assert sum(size for *_, size in architecture(net)) == net.parameters
