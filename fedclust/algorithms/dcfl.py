"""DCFL: clusters that are drawn anew whenever the updates no longer fit them.

Augello, Falzone, Lo Re: DCFL: Dynamic Clustered Federated Learning under Differential Privacy
Settings. PerCom Workshops 2023.

`info`: `dunn`, the index of the clusters this round was trained in (nan for one cluster);
`reclustered`, whether new ones were adopted; `converged`, whether affinity propagation did (nan if
it did not run).

Deviations:
(1) Similarity is -d**power, and the preference is a quantile of all similarities: the median, as in
    scikit-learn. Damping is 0.5, then 0.9; if that does not converge either, the old clusters stay.
(2) Updates that are all equally far apart (two always are) are one cluster; scikit-learn would make
    each one its own.
(3) l.17 weighs by samples like FedAvg; Eq. 5 is the plain mean as printed.
(4) Eq. 5 speaks of client models, l.24 of cluster models: `new_models`.
(5) With a share of the clients per round, which the paper leaves to the future, the participants
    are clustered, and an absent client follows the new model nearest to the one it had.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from sklearn.base import ClusterMixin, clone
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from fedclust.algorithms.base import Info, State, cost, mean_by
from fedclust.algorithms.fedavg import FedAvg
from fedclust.checks import Positive
from fedclust.federation import Federation
from fedclust.geometry import Kind, distance, dunn
from fedclust.rng import key

AFFINITY = AffinityPropagation(affinity="precomputed", max_iter=1000)
ATTEMPTS = (  # the second if the first does not converge; slower messages need a longer standstill
    {"damping": 0.5, "convergence_iter": 15},
    {"damping": 0.9, "convergence_iter": 75},
)


@dataclass(frozen=True)
class DCFL(FedAvg):
    """Augello et al. 2023, Algorithm 1."""

    distance: Kind = "complete"
    preference: Annotated[float, "[0, 1]"] = 0.5  # quantile of the similarities: more for more
    power: Positive = 1.0
    new_models: Literal["clients", "clusters"] = "clients"
    recluster: Literal["dunn", "never"] = "dunn"
    estimator: ClusterMixin = AFFINITY

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        new, chosen, ends = self.average(state, fed, seed, t)  # Alg. 1 l.12-18
        new = new._replace(memory={"global": new.models.mean(0)})  # Alg. 1 l.19  W_G
        cluster = state.labels[chosen]
        distances = distance(state.models, ends, self.distance, cluster)  # Alg. 1 l.20, Eq. 2
        index = dunn(distances, cluster)  # Alg. 1 l.21, Eq. 3
        info = cost(state, chosen) | {"dunn": index, "reclustered": 0.0, "converged": math.nan}
        if self.recluster == "dunn" and (len(state.models) == 1 or index < 1):  # Alg. 1 l.22
            found = self.cluster(distances, key(seed, "affinity", t) % 2**32)  # Alg. 1 l.23
            info["converged"] = info["reclustered"] = float(found is not None)
            if found is not None:
                new = self.regroup(new, chosen, ends, found)  # Alg. 1 l.24-25
        return new, info

    def cluster(self, distances: Tensor, random_state: int) -> Tensor | None:
        """Affinity propagation, (n, n) -> (n,); None if it does not converge."""
        apart = distances[~torch.eye(len(distances), dtype=torch.bool)]
        if len(distances) <= 2 or apart.max() - apart.min() <= 1e-6 * apart.max():
            return torch.zeros(len(distances), dtype=torch.long)
        similarity = -distances.double().pow(self.power)
        preference = quantile(similarity, self.preference)
        for attempt in ATTEMPTS:
            estimator = clone(self.estimator)
            estimator.set_params(preference=preference, random_state=random_state, **attempt)
            with warnings.catch_warnings():
                warnings.simplefilter("error", ConvergenceWarning)
                try:
                    return torch.from_numpy(estimator.fit_predict(similarity.numpy())).long()
                except ConvergenceWarning:
                    continue
        return None

    def regroup(self, state: State, chosen: Tensor, ends: Tensor, found: Tensor) -> State:
        """The participants' new clusters and models; `state` has the old ones after the round."""
        members = ends if self.new_models == "clients" else state.models[state.labels[chosen]]
        fallback = members[: int(found.max()) + 1]  # no cluster is empty
        models = mean_by(members, found, torch.ones(len(found)), fallback)  # Eq. 5  (K, P)
        follow = torch.cdist(state.models, models).argmin(1)  # (old K, K) -> (old K,)
        labels = follow[state.labels].index_copy(0, chosen, found)  # (N,)
        return state._replace(models=models, labels=labels)

    def trains_newcomers(self, state: State) -> bool:
        return True  # Alg. 1 l.7, also if there is only one cluster to join

    def middle(self, state: State) -> Tensor:
        """W_G (Alg. 1 l.6): the mean of the clusters that the last round was trained in."""
        return state.memory.get("global", state.models.mean(0))

    def nearest(self, middle: Tensor, theta: Tensor, models: Tensor) -> Tensor:
        """Eq. 6: compare newcomer and cluster models as updates from W_G (Alg. 1 l.6)."""
        ends = torch.cat([models, theta])
        same = torch.zeros(len(ends), dtype=torch.long)
        distances = distance(middle[None], ends, self.distance, same)
        return distances[len(models) :, : len(models)].argmin(1)  # Alg. 1 l.8  (n, K) -> (n,)


def quantile(values: Tensor, share: float) -> float:
    """torch.quantile, which refuses the similarities of more than 4,096 clients."""
    ordered = values.flatten().sort().values
    rank = share * (len(ordered) - 1)
    below, above = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return float(below.lerp(above, rank - math.floor(rank)))
