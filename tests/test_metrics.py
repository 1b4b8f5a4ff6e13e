import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedclust import metrics
from fedclust.federation import Federation
from tests.algorithms.toy import toy_model


def one_pixel(*clients):
    """A federation whose three halves are these clients' (pixel, label) pairs."""
    data = [
        (
            torch.tensor([p[0] for p in c]).float().view(-1, 1, 1, 1),
            torch.tensor([p[1] for p in c], dtype=torch.long),
        )
        for c in clients
    ]
    return Federation.stack(
        {"train": data, "test": data}, group=torch.zeros(len(data), dtype=torch.long), classes=2
    )


def test_evaluate_by_hand():
    """Rows are (w0, w1, b0, b1). Model 0 says 1 for positive pixels, model 1 says the opposite,
    both with
    logits -+x, so the loss of a right answer at x = 1 is log(1 + e^-2) and of a wrong one log(1 +
    e^2)."""
    models = torch.tensor([[-1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]])
    fed = one_pixel([(1, 1), (1, 1), (-1, 1), (-1, 0)], [(1, 1)], [(1, 1)], [])
    accuracy, loss = metrics.evaluate(toy_model(), models, torch.tensor([0, 0, 1, 1]), fed)
    right, wrong = math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))
    torch.testing.assert_close(accuracy, torch.tensor([0.75, 1.0, 0.0, torch.nan]), equal_nan=True)
    torch.testing.assert_close(
        loss, torch.tensor([(3 * right + wrong) / 4, right, wrong, torch.nan]), equal_nan=True
    )


def test_evaluate_equals_one_client_at_a_time_whatever_the_chunks(monkeypatch):
    model, g = toy_model(), torch.Generator().manual_seed(0)
    clients = [
        [(float(torch.randn((), generator=g)), i % 2) for i in range(n)] for n in (5, 1, 7, 3)
    ]
    fed, models, labels = (
        one_pixel(*clients),
        torch.randn(2, 4, generator=g),
        torch.tensor([1, 0, 1, 1]),
    )
    monkeypatch.setattr(metrics, "CHUNK", 4)
    accuracy, loss = metrics.evaluate(model, models, labels, fed, "train")
    for i in range(4):
        logits, y = model.logits(models[labels[i]], fed.x[i][fed.mask[i]]), fed.y[i][fed.mask[i]]
        assert float(accuracy[i]) == pytest.approx(float((logits.argmax(1) == y).float().mean()))
        assert float(loss[i]) == pytest.approx(float(cross_entropy(logits, y)), rel=1e-6)


def test_purity_and_scores_by_hand():
    """Clusters {a, a, b} and {b, b, c}: 2 + 2 of 6 clients are of their cluster's largest group."""
    labels, group = torch.tensor([5, 5, 5, 2, 2, 2]), torch.tensor([0, 0, 1, 1, 1, 2])
    assert metrics.purity(labels, group) == pytest.approx(4 / 6)
    scores = metrics.clustering(labels, group)
    # pairs together: in both 2, by labels 6, by groups 1 + 3 = 4, expected 6 * 4 / 15 = 1.6;
    # (2 - 1.6) / (5 - 1.6)
    assert scores["ari"] == pytest.approx(0.4 / 3.4) and scores["clusters"] == 2
    assert metrics.clustering(group, group)["ari"] == metrics.clustering(group, group)["nmi"] == 1
