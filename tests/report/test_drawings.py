"""Papers' own figures: what is drawn is what was measured."""

import numpy as np
import pytest
import torch

from fedclust.experiments.tasks.train import train
from fedclust.report import plots
from fedclust.report.drawings import dcfl, fedac

BASE = {
    "data": {"name": "glyphs", "n": 600, "n_test": 60},
    "partition": {"kind": "class_groups", "clients": 12, "groups": 2},
    "model": {"kind": "mlp", "hidden": [8]},
    "train": {"lr": 0.1, "batch": 10, "steps": 2},
    "rounds": 4,
}


def test_the_tree_shows_each_cluster_with_its_clients():
    method = {"kind": "FedAC", "fraction": 1.0, "alpha": torch.inf, "beta": 0.5}
    run = train(BASE | {"method": method}, seed=0)
    _, ax = plots.panels()
    fedac.lineage(ax, run)
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    last = run[(run.metric == "accuracy") & (run["round"] == 3)]
    assert (
        sorted(labels) == [f"cluster {k}" for k in sorted(last.cluster.unique())]
        and len(labels) > 1
    )
    ends = {text.get_text() for text in ax.texts if text.get_weight() == "bold"}
    table = last.groupby(["cluster", "group"]).size().unstack(fill_value=0)
    assert ends == {" · ".join(map(str, row)) for row in table.to_numpy()}
    ticks = len(labels) + 1  # start, a split for each cluster but the first, end
    assert len(ax.get_xticks()) == ticks


def test_two_updates_running_apart_have_the_largest_divergence():
    _, ax = plots.panels()
    dcfl.update_pair(ax, "apart", [[1, 0], [2, 0]], [[0, 0], [3, 0]], ("AB", "CD"))
    assert "$\\omega$ = 1.00, gap = 3.00" in ax.get_title(loc="left")
    assert f"d = {3 * np.exp(2):.2f}" in ax.get_title(loc="left")
    assert not ax.patches  # flat angles have no arc
    dcfl.update_pair(ax, "any", [[0, 0], [3, 0.2]], [[0.6, 1.6], [2, 1.5]], ("AB", "CD"))
    assert len(ax.patches) == 2


@pytest.mark.parametrize(("share", "c", "expected"), [(0.5, -1.0, 0.0), (0.3, 1.0, 1.0)])
def test_equal_updates_by_hand(share, c, expected):
    if expected == 0.0:  # both halves cancel, the mean is zero
        with np.errstate(invalid="ignore"):
            assert np.isnan(fedac.equal_updates(np.float64(share), c))
    else:
        assert fedac.equal_updates(share, c) == pytest.approx(expected)
