"""CFL: clusters that split in two near a stationary point which suits nobody.

Sattler, Müller, Samek: Clustered Federated Learning. IEEE TNNLS 32 (2021) 3710-3722. Here it is DCFL's baseline.

`info`: `splits` of this round; `mean_norm`, the smallest step of a cluster's model (the gate of eps1), and `max_norm`,
the largest of a client's (the gate of eps2).

Deviations: (1) the gates and the default thresholds are those of the authors' experiments (eps1 0.4, eps2 1.6, none in
the first 20 rounds nor of two clients); the bound on the cosine between the halves, which needs the noise of the
gradients, is left out as there; (2) the authors' code keeps each client's latest update: with a share of the clients
per round it divides by updates of other rounds and other models. Here the gates see this round's participants, and
those who were absent when their cluster splits train once more from its model, only to be divided; (3) newcomers join
as in `Method.admit`, there is no parameter tree.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor

from fedclust.algorithms.base import Info, State, cost
from fedclust.algorithms.fedavg import FedAvg
from fedclust.federation import Federation
from fedclust.geometry import distance


@dataclass(frozen=True)
class CFL(FedAvg):
    """Sattler et al. 2021: FedAvg in each cluster; it splits where |mean update| < eps1 and max |update| > eps2."""

    begins_as: ClassVar[str] = "FedAvg"

    eps1: float = 0.4
    eps2: float = 1.6
    warmup: int = 20

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        new, chosen, theta = self.average(state, fed, seed, t)
        cluster = state.labels[chosen]
        norms = (theta - state.models[cluster]).norm(dim=1)  # (n,)
        moved = (new.models - state.models).norm(dim=1)  # (K,)  the weighted mean of the updates
        trained = chosen
        for k in cluster.unique().tolist() if t >= self.warmup else ():
            present, members = chosen[cluster == k], (state.labels == k).nonzero()[:, 0]
            if moved[k] < self.eps1 and norms[cluster == k].max() > self.eps2 and len(members) > 2:
                absent = members[~torch.isin(members, present)]
                start = state.models[k].expand(len(members), -1)
                late = self.train(start[: len(absent)], fed, absent, seed, t) if len(absent) else theta[:0]
                who, ends = torch.cat([present, absent]), torch.cat([theta[cluster == k], late])
                leaving = who[bipartition(distance(start, ends, "cosine")) == 1]
                new = split(new, k, leaving)
                trained = torch.cat([trained, absent])
        served = cluster.unique()
        info = {
            "splits": len(new.models) - len(state.models),
            "mean_norm": moved[served].min(),
            "max_norm": norms.max(),
        }
        return new, cost(state, trained, extra=len(trained) - len(chosen)) | info


def bipartition(distances: Tensor) -> Tensor:
    """Two halves (n,) by complete linkage: the largest distance across is what the last merge would cost."""
    linkage = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    return torch.from_numpy(linkage.fit_predict(distances.double().numpy()))


def split(state: State, k: int, leaving: Tensor) -> State:
    """The clients at these positions go on with a copy of the model of cluster k."""
    return state._replace(
        models=torch.cat([state.models, state.models[k : k + 1]]),
        labels=state.labels.index_fill(0, leaving, len(state.models)),
    )
