import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from torch.nn.functional import cross_entropy

from fedclust import metrics
from fedclust.federation import Federation
from tests.algorithms.toy import toy_model


def one_pixel(*clients):
    """A federation whose three halves are these clients' (pixel, label) pairs."""
    data = [
        (torch.tensor([p[0] for p in c]).float().view(-1, 1, 1, 1), torch.tensor([p[1] for p in c], dtype=torch.long))
        for c in clients
    ]
    return Federation.stack({"train": data, "test": data}, group=torch.zeros(len(data), dtype=torch.long), classes=2)


def test_evaluate_by_hand():
    """Rows are (w0, w1, b0, b1). Model 0 says 1 for positive pixels, model 1 says the opposite, both with
    logits -+x, so the loss of a right answer at x = 1 is log(1 + e^-2) and of a wrong one log(1 + e^2)."""
    models = torch.tensor([[-1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]])
    fed = one_pixel([(1, 1), (1, 1), (-1, 1), (-1, 0)], [(1, 1)], [(1, 1)], [])
    accuracy, loss = metrics.evaluate(toy_model(), models, torch.tensor([0, 0, 1, 1]), fed)
    right, wrong = math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))
    torch.testing.assert_close(accuracy, torch.tensor([0.75, 1.0, 0.0, torch.nan]), equal_nan=True)
    torch.testing.assert_close(loss, torch.tensor([(3 * right + wrong) / 4, right, wrong, torch.nan]), equal_nan=True)


def test_evaluate_equals_one_client_at_a_time_whatever_the_chunks(monkeypatch):
    model, g = toy_model(), torch.Generator().manual_seed(0)
    clients = [[(float(torch.randn((), generator=g)), i % 2) for i in range(n)] for n in (5, 1, 7, 3)]
    fed, models, labels = one_pixel(*clients), torch.randn(2, 4, generator=g), torch.tensor([1, 0, 1, 1])
    monkeypatch.setattr(metrics, "CHUNK", 4)
    accuracy, loss = metrics.evaluate(model, models, labels, fed, "train")
    for i in range(4):
        logits, y = model.logits(models[labels[i]], fed.x[i][fed.mask[i]]), fed.y[i][fed.mask[i]]
        assert float(accuracy[i]) == pytest.approx(float((logits.argmax(1) == y).float().mean()))
        assert float(loss[i]) == pytest.approx(float(cross_entropy(logits, y)), rel=1e-6)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=30))
def test_scores_are_scikit_learns(pairs):
    mine, true = np.array(pairs).T
    table = metrics.cross_table(mine, true)
    assert metrics.ari(table) == pytest.approx(adjusted_rand_score(true, mine), abs=1e-12)
    assert metrics.nmi(table) == pytest.approx(normalized_mutual_info_score(true, mine), abs=1e-7)


def test_purity_and_scores_by_hand():
    """Clusters {a, a, b} and {b, b, c}: 2 + 2 of 6 clients belong to their cluster's largest group."""
    labels, group = torch.tensor([5, 5, 5, 2, 2, 2]), torch.tensor([0, 0, 1, 1, 1, 2])
    assert metrics.purity(labels, group) == pytest.approx(4 / 6)
    scores = metrics.clustering(labels, group)
    # pairs together: in both 2, by labels 6, by groups 1 + 3 = 4, expected 6 * 4 / 15 = 1.6; (2 - 1.6) / (5 - 1.6)
    assert scores["ari"] == pytest.approx(0.4 / 3.4) and scores["clusters"] == 2
    assert metrics.clustering(group, group)["ari"] == metrics.clustering(group, group)["nmi"] == 1


def record(values, metric="accuracy", seed=0):
    rows = [("M", seed, t, i, 0, 0, metric, v) for t, clients in enumerate(values) for i, v in enumerate(clients)]
    return pd.DataFrame(rows, columns=["algorithm", "seed", "round", "client", "group", "cluster", "metric", "value"])


def test_over_clients_is_the_population():
    table = metrics.over_clients(record([[0.2, 0.6], [0.5, 0.5]]))
    assert table["mean"].tolist() == pytest.approx([0.4, 0.5]) and table["std"].tolist() == pytest.approx([0.2, 0.0])


def test_final_and_average():
    table = metrics.final_and_average(record([[0.2, 0.6], [0.5, 0.5]])).loc[0, "M"]
    assert table["final mean"] == pytest.approx(0.5) and table["final std"] == pytest.approx(0)
    assert table["average mean"] == pytest.approx(0.45) and table["average std"] == pytest.approx(0.1)


def test_rounds_to_says_when_it_never_got_there():
    both = pd.concat([record([[0.1], [0.6], [0.4], [0.7]]), record([[0.1], [0.2], [0.3], [0.4]], seed=1)])
    table = metrics.rounds_to(both, "accuracy", 0.5).set_index("seed")
    assert table.loc[0, "round"] == 1 and not table.loc[0, "censored"]
    assert table.loc[1, "round"] == 3 and table.loc[1, "censored"]


def test_regrouped_ignores_names_and_newcomers():
    """{01}{2} -> the same under other names and a newcomer: no; -> {0}{12}: yes."""
    columns = ["algorithm", "seed", "round", "client", "group", "cluster", "metric", "value"]
    clusters = [{0: 0, 1: 0, 2: 1}, {0: 5, 1: 5, 2: 3, 3: 3}, {0: 5, 1: 3, 2: 3, 3: 5}]
    rows = [("M", 0, t, i, i, k, "accuracy", 0.5) for t, labels in enumerate(clusters) for i, k in labels.items()]
    assert metrics.regrouped(pd.DataFrame(rows, columns=columns)).regrouped.tolist() == [0, 1]
