"""CFL: a cluster is divided in two near a stationary point that suits none of its clients.

Sattler, Müller, Samek: Clustered Federated Learning. IEEE TNNLS 32 (2021) 3710-3722. In this
library it is DCFL's baseline.

`info`: `splits` of this round; `mean_norm`, the smallest step of a cluster's model (the gate of
eps1), and `max_norm`, the largest update of a client (the gate of eps2).

Deviations:
(1) The gates and the default thresholds are those of the authors' experiments: eps1 0.4, eps2 1.6,
    no division in the first 20 rounds nor of two clients. The bound on the cosine between the
    halves, which needs the noise of the gradients, is left out as there.
(2) The authors' code keeps each client's latest update, so with a share of the clients per round it
    compares updates of several rounds. Here the gates see this round's participants; clients that
    were absent when their cluster is divided train once more from its model. As in that code each
    half continues from the mean of its own members, these included.
(3) Newcomers join as in `Method.admit`; there is no parameter tree.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor

from fedclust.algorithms.base import Info, State, cost, mean_by
from fedclust.algorithms.fedavg import FedAvg
from fedclust.checks import Number
from fedclust.federation import Federation
from fedclust.geometry import distance


@dataclass(frozen=True)
class CFL(FedAvg):
    """Sattler et al. 2021: divide a cluster where |mean update| < eps1 and max |update| > eps2."""

    begins_as: ClassVar[str] = "FedAvg"

    eps1: Annotated[float, "[0, inf]"] = 0.4
    eps2: Annotated[float, "[0, inf]"] = 1.6
    warmup: Number = 20

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        new, chosen, theta = self.average(state, fed, seed, t)
        cluster = state.labels[chosen]
        norms = (theta - state.models[cluster]).norm(dim=1)  # (n,)
        moved = (new.models - state.models).norm(dim=1)  # (K,)  the weighted mean of the updates
        trained, served = chosen, cluster.unique()
        for k in served.tolist() if t >= self.warmup else ():
            present, members = chosen[cluster == k], (state.labels == k).nonzero()[:, 0]
            largest = norms[cluster == k].max()
            if moved[k] < self.eps1 and largest > self.eps2 and len(members) > 2:
                absent = members[~torch.isin(members, present)]
                received, ends = state.models[k].expand(len(members), -1), theta[cluster == k]
                if len(absent):
                    late = self.train(received[: len(absent)], fed, absent, seed, t)
                    ends = torch.cat([ends, late])
                clients = torch.cat([present, absent])
                side = bipartition(distance(received, ends, "cosine"))
                weights = self.weigh(state, ends, fed, clients)
                halves = mean_by(ends, side, weights, ends[:2])  # (n, P) -> (2, P)
                new = divide(new, k, clients[side == 1], halves)
                trained = torch.cat([trained, absent])
        info = cost(state, trained, extra=len(trained) - len(chosen))
        info |= {"splits": len(new.models) - len(state.models)}
        return new, info | {"mean_norm": moved[served].min(), "max_norm": norms.max()}


def bipartition(distances: Tensor) -> Tensor:
    """Two halves (n,) by complete linkage, as in the authors' code."""
    linkage = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    return torch.from_numpy(linkage.fit_predict(distances.double().numpy()))


def divide(state: State, k: int, leaving: Tensor, halves: Tensor) -> State:
    """Cluster k gets the first of two models (2, P), the clients at these positions the other."""
    before, after = state.models[:k], state.models[k + 1 :]
    labels = state.labels.index_fill(0, leaving, len(state.models))
    models = torch.cat([before, halves[:1], after, halves[1:]])
    return state._replace(models=models, labels=labels)
