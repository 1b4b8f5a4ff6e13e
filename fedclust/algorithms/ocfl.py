"""OCFL: clients are clustered once, by what they learn alone; every cluster is then a federation.

Lu, Deng, Wu, Zhou, Ma: Federated Learning Based on OPTICS Clustering Optimization. Discrete
Dynamics in Nature and Society 2022, 7151373.

`info` of round 0 includes what came before it: `found` clusters and `noise` points before the
merge, and the cost of the training alone, one model down and up for every client.

Deviations:
(1) The paper calls the training alone both "full" and one epoch: `pretrain` is a trainer of its
    own; without it the round's trainer serves.
(2) The metric of OPTICS is not named: Euclidean. Noise points, which the paper would strip, are
    clusters of one client.
(3) "Similar clusters were combined": average linkage on the cosine (Eq. 1) of the clusters' mean
    updates. Raw parameters are nearly parallel and form chains (`merge_on="parameters"`).
(4) Algorithm 2 starts from the initial model.
(5) Newcomers, which the paper does not treat, join as in `Method.admit`.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from sklearn.base import ClusterMixin, clone
from sklearn.cluster import OPTICS, AgglomerativeClustering
from torch import Tensor

from fedclust.accounting import spent
from fedclust.algorithms.base import Info, State, Trainer, cost, mean_by, sample_within
from fedclust.algorithms.fedavg import FedAvg
from fedclust.checks import Count, Share, require
from fedclust.federation import Federation
from fedclust.geometry import cosine
from fedclust.rng import key

DENSITY = OPTICS(min_samples=2, xi=0.1)
CHUNK = 4096  # columns at a time: their factorisation stays in the cache


@dataclass(frozen=True)
class OCFL(FedAvg):
    """Lu et al. 2022, Algorithms 1 and 2."""

    fraction: Share = 0.1
    pretrain: Trainer | None = None
    estimator: ClusterMixin = DENSITY
    merge: Count | None = None
    merge_on: Literal["updates", "parameters"] = "updates"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            hasattr(self.train, "spent") == hasattr(self.pretrain or self.train, "spent"),
            "pretrain: it and the rounds' trainer must both be private or neither, because the "
            "models of both leave the clients",
        )

    def spent(self, calls: Tensor, fed: Federation, first: int) -> dict[str, Tensor]:
        if self.pretrain is None or not hasattr(self.train, "spent"):
            return super().spent(calls, fed, first)
        alone = (torch.arange(len(fed)) < first).to(calls)
        return spent([(self.pretrain, alone), (self.train, calls - alone)], fed)

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        order = fed.ids.argsort()  # OPTICS visits points in turn: by name, whatever their positions
        train, received = self.pretrain or self.train, theta.expand(len(fed), -1)
        alone = train(received, fed, order, key(seed, "alone"), 0)  # Alg. 1
        labels = found = cluster_parameters(alone, self.estimator)  # Alg. 1
        if self.merge is not None:
            vectors = alone - theta if self.merge_on == "updates" else alone
            labels = merge_clusters(vectors, found, self.merge)
        noise = (found.bincount() == 1).sum()
        memory = {"alone": torch.ones(len(fed)), "found": found.max() + 1, "noise": noise}
        models = theta.repeat(int(labels.max()) + 1, 1)
        return State(models, torch.empty_like(labels).index_copy(0, order, labels), memory)

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        new, chosen, _ = self.average(state, fed, seed, t)  # Alg. 2
        info = cost(state, chosen)
        if "alone" in state.memory:  # the first round pays for what came before it
            before = cost(state, torch.arange(len(state.memory["alone"])))
            info = {name: info[name] + before[name] for name in info} | {"extra": before["down"]}
            info |= {name: state.memory[name] for name in ("found", "noise")}
        return new._replace(memory={}), info

    def choose(self, state: State, fed: Federation, seed: int, t: int) -> Tensor:
        return sample_within(fed, self.fraction, state.labels, seed, t)  # Alg. 2  m, S_t


def cluster_parameters(theta: Tensor, estimator: ClusterMixin) -> Tensor:
    """Labels 0 .. K-1 of the rows (N, P) by a scikit-learn clusterer; noise is clusters of one."""
    if len(theta) == 1:
        return torch.zeros(1, dtype=torch.long)
    with np.errstate(invalid="ignore", divide="ignore"):  # OPTICS divides by distances of 0
        found = clone(estimator).fit_predict(coordinates(theta).numpy())
    labels = torch.from_numpy(found).long()
    noise = labels < 0
    labels[noise] = labels.max() + 1 + torch.arange(int(noise.sum()))
    return labels.unique(return_inverse=True)[1]


def coordinates(theta: Tensor) -> Tensor:
    """N vectors in the N dimensions they span: lengths and angles stay, columns become few."""
    if theta.shape[1] <= len(theta):
        return theta.double()
    parts = [torch.linalg.qr(part.double().mT, mode="r").R for part in theta.split(CHUNK, 1)]
    return torch.linalg.qr(torch.cat(parts), mode="r").R.mT  # (chunks * N, N) -> (N, N)


def merge_clusters(vectors: Tensor, labels: Tensor, k: int) -> Tensor:
    """Merge clusters by average linkage on the cosine of their mean vectors (Eq. 1) to k."""
    count = int(labels.max()) + 1
    if count <= k:
        return labels
    means = mean_by(vectors, labels, torch.ones(len(labels)), vectors[:count])  # (N, P) -> (K, P)
    linkage = AgglomerativeClustering(n_clusters=k, metric="precomputed", linkage="average")
    return torch.from_numpy(linkage.fit_predict((1 - cosine(means)).double().numpy()))[labels]
