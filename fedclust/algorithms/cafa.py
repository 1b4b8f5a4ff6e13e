"""CBCC, ABFA and CAFA: weights for the clients of one global model.

Zhang, Wang, Li, Cardiff, Ranaweera: Optimizing Federated Learning on Non-IID Data with Clustering
and Model Sharing.

All three are FedAvg with another `weigh`; the weighted mean does the normalisation of Eqs. 10 and
11. Sharing the models costs m (m - 1) transfers among a round's m clients, counted in `down`.
`state.memory["cluster"]` has the CBCC cluster of each client. `info` has only the costs.

Deviations:
(1) Newcomers, which the paper does not treat, are clustered with all others when they come.
(2) There are no more clusters than different vectors: a larger k has no silhouette, and clients
    that are all alike are one cluster.
(3) If no shared model gets anything right, all accuracy weights are equal.
(4) Of equally large clusters Eq. 7 takes the first.
(5) A client also evaluates its own model, as in the listing (l.13); the text says "received".
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from torch import Tensor

from fedclust.algorithms.base import Info, State
from fedclust.algorithms.fedavg import FedAvg
from fedclust.checks import Count, Share, whole
from fedclust.federation import Federation
from fedclust.metrics import evaluate
from fedclust.models import Model
from fedclust.rng import key


def class_frequencies(fed: Federation) -> Tensor:
    """Share of each class in all that a client may train or validate on, (N, classes)."""
    counts = fed.class_counts() + (fed.class_counts("val") if fed.y_val is not None else 0)
    return counts.double() / counts.sum(1, keepdim=True).clamp_min(1)  # Eqs. 1, 2


def kmeans(vectors: np.ndarray, k: int, seed: int) -> np.ndarray:
    random_state = key(seed, "kmeans", k) % 2**32
    return KMeans(k, n_init=10, random_state=random_state).fit(vectors).labels_  # Eq. 6


def best_k(vectors: Tensor, seed: int = 0) -> tuple[int, dict[int, float]]:
    """The number of clusters with the best mean silhouette, and that of every k from 2 to n - 1."""
    v, _ = ordered(vectors)
    last = min(len(v) - 1, len(np.unique(v, axis=0)))
    with config_context(assume_finite=True, skip_parameter_validation=True):  # once is enough
        scores = {
            k: float(silhouette_score(v, kmeans(v, k, seed)))  # Eqs. 3, 4
            for k in range(2, last + 1)
        }
    return max(scores, key=scores.__getitem__, default=1), scores  # Eq. 5


def cbcc(vectors: Tensor, k: int | None = None, seed: int = 0) -> Tensor:
    """Cluster of each client, (N, classes) -> (N,); the silhouette chooses k if it is not given."""
    if k is not None:
        whole(f"[1, {len(vectors)}]", clusters=k)
    v, order = ordered(vectors)
    k = min(k or best_k(vectors, seed)[0], len(np.unique(v, axis=0)))
    labels = np.empty(len(v), dtype=np.int64)
    labels[order] = kmeans(v, k, seed)
    return torch.from_numpy(labels)


def ordered(vectors: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Sorted rows and their order: k-means must not depend on the order of the clients."""
    v = vectors.cpu().double().numpy()
    order = np.lexsort(v.T)
    return v[order], order


def iid(labels: Tensor) -> Tensor:
    """Which clients count as IID: those of the largest cluster, (N,) bool."""
    return labels == labels.bincount().argmax()  # Eq. 7


def cluster_weights(labels: Tensor) -> Tensor:
    """A client's weight is its cluster's share of all clients, (N,)."""
    return labels.bincount()[labels].double() / len(labels)  # Eq. 8


def shared_accuracy(model: Model, theta: Tensor, fed: Federation) -> Tensor:
    """Accuracy of each model on each client's validation samples, (m, P) -> (m, m)."""
    first = torch.zeros(len(fed), dtype=torch.long)
    return torch.stack([evaluate(model, row[None], first, fed, "val")[0] for row in theta])


def accuracy_weights(accuracy: Tensor, sizes: Tensor) -> Tensor:
    """Each model's mean accuracy, weighted by validation samples, as a share: (m, m) -> (m,)."""
    mean = accuracy.nan_to_num().double() @ sizes.double() / sizes.sum().clamp_min(1)  # Eq. 9
    return mean / mean.sum() if mean.any() else torch.full_like(mean, 1 / len(mean))  # Eq. 10


@dataclass(frozen=True)
class CBCC(FedAvg):
    """Zhang et al., Sec. III-A: a client weighs as much as its cluster of class mixes is large.

    No epsilon covers the class frequencies, which leave the clients as they are.
    """

    reveals: ClassVar[tuple[str, ...]] = ("class frequencies",)

    fraction: Share = 0.3
    weighted: bool = field(default=False, init=False)
    clusters: Count | None = None  # None: by silhouette

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        return self.cluster(super().init(theta, fed, seed), fed, seed)

    def admit(self, state: State, fed: Federation, seed: int, t: int) -> State:
        return self.cluster(super().admit(state, fed, seed, t), fed, seed)

    def cluster(self, state: State, fed: Federation, seed: int) -> State:
        labels = cbcc(class_frequencies(fed), self.clusters, seed)  # Alg. 1 l.2-3
        return state._replace(memory={**state.memory, "cluster": labels})

    def weigh(self, state: State, theta: Tensor, fed: Federation, chosen: Tensor) -> Tensor:
        return cluster_weights(state.memory["cluster"])[chosen]  # Alg. 1 l.4, l.8-9


@dataclass(frozen=True)
class ABFA(FedAvg):
    """Zhang et al., Sec. III-B: a client's weight is its model's accuracy on validation samples.

    No epsilon covers the accuracies, which are of the validation samples of other clients.
    """

    reveals: ClassVar[tuple[str, ...]] = ("accuracies on validation samples",)

    fraction: Share = 0.3
    weighted: bool = field(default=False, init=False)

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        state, info = super().step(state, fed, seed, t)
        shared = info["up"] * (info["up"] - 1)  # each model to every other client of the round
        size = info["bytes"] / (info["down"] + info["up"])
        more = {"down": info["down"] + shared, "bytes": info["bytes"] + shared * size}
        return state, info | more

    def weigh(self, state: State, theta: Tensor, fed: Federation, chosen: Tensor) -> Tensor:
        present = fed.take(chosen)
        accuracy = shared_accuracy(self.train.model, theta, present)  # Alg. 1 l.13
        return accuracy_weights(accuracy, present.half("val")[2].sum(1))  # Alg. 1 l.14


@dataclass(frozen=True)
class CAFA(CBCC, ABFA):
    """Zhang et al., Algorithm 1: the product of the weights of CBCC and ABFA.

    No epsilon covers what both of them reveal.
    """

    reveals = CBCC.reveals + ABFA.reveals

    def weigh(self, state: State, theta: Tensor, fed: Federation, chosen: Tensor) -> Tensor:
        clusters = CBCC.weigh(self, state, theta, fed, chosen)
        return clusters * ABFA.weigh(self, state, theta, fed, chosen)  # Alg. 1 l.16-18, Eq. 11
