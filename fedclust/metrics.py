"""Scores: models on the clients' data, clusterings against the ground truth."""

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedclust import fast
from fedclust.federation import Federation
from fedclust.models import CHUNK, Model

Scores = tuple[Tensor, Tensor]  # accuracy (N,), mean loss (N,)


@fast.shared
@torch.no_grad()
def evaluate(
    model: Model, models: Tensor, labels: Tensor, fed: Federation, half: str = "test"
) -> Scores:
    """Accuracy (N,) and mean loss (N,) of models[labels[i]] on a half of client i's data.

    Both are nan for a client without samples. Each model runs once over all its clients' images.
    """
    x, y, mask = fed.half(half)
    right, loss = torch.zeros(len(fed)), torch.zeros(len(fed))
    for k in labels.unique().tolist():
        members = (labels == k).nonzero()[:, 0]
        parts = members.split(max(1, CHUNK // y.shape[1]))  # a part fits in the processor's cache
        logits = torch.cat([model.logits(models[k], rows(x, part).flatten(0, 1)) for part in parts])
        targets, real = y[members], mask[members].to(logits.dtype)  # (n, M)
        correct = (logits.argmax(1) == targets.flatten()).view_as(targets)
        losses = cross_entropy(logits, targets.flatten(), reduction="none").view_as(targets)
        right[members] = (correct * real).sum(1).float()
        loss[members] = (losses * real).sum(1).float()
    count = mask.sum(1).float()
    count[count == 0] = torch.nan
    return right / count, loss / count


def rows(x: Tensor, which: Tensor) -> Tensor:
    """x[which] for ascending positions, without a copy where they are consecutive."""
    first, last = int(which[0]), int(which[-1])
    return x[first : last + 1] if last - first + 1 == len(which) else x[which]


def purity(labels: Tensor | np.ndarray, group: Tensor | np.ndarray) -> float:
    """Share of clients that belong to their cluster's largest true group (joint, Sec. III-A).

    >>> purity(np.array([0, 0, 0, 1]), np.array([5, 5, 6, 6]))
    0.75
    """
    return float(contingency_matrix(labels, group).max(1).sum() / len(labels))  # (K, groups)


def clustering(labels: Tensor, group: Tensor) -> dict[str, float]:
    """The clustering against the ground truth: number of clusters, purity, ARI, NMI."""
    return {
        "clusters": float(len(labels.unique())),
        "purity": purity(labels, group),
        "ari": float(adjusted_rand_score(group, labels)),
        "nmi": float(normalized_mutual_info_score(group, labels)),
    }
