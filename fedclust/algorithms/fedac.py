"""FedAC and FedACP: a cluster splits in two when its loss stands still while its clients' updates disagree.
Hsu et al.: Personalized Federated Learning Algorithm with Adaptive Clustering ... Sensors 2023, 23, 9016.

`info`: `splits` of this round and, per client, the two gates of the cluster it trained in: `dloss` = |change of the
loss| (open below alpha) and `theta` = the smallest cosine (open below beta).

Deviations: (1) the anchors have the *smallest* cosine: the listing prints the maximum, the text says farthest;
(2) `loss="sum"`: the mean test loss of the cluster's clients times their number of batches of 32, the sum over batches
if all are full; (3) who did not take part trains once more from the same model, only to be placed; (4) both children
start from the parent's new model; (5) a cluster that samples one client cannot disagree; (6) FedACP is named in the
paper, not defined; (7) newcomers, not in the paper, join as in `Method.admit`.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.algorithms.base import Info, State, cost, sample_within
from fedclust.algorithms.fedavg import FedAvg
from fedclust.federation import Federation
from fedclust.geometry import cosine, cosine_to
from fedclust.metrics import evaluate

BATCH = 32  # test images per batch whose losses are summed


@dataclass(frozen=True)
class FedAC(FedAvg):
    """Hsu et al. 2023, Algorithm 2: a cluster splits when |dloss| < alpha and an update's cosine to the mean < beta."""

    begins_as: ClassVar[str] = "FedAvg"

    fraction: float = 0.1
    alpha: float = 5.0
    beta: float = 0.0  # the cosine of 90 degrees
    loss: str = "sum"
    reading: str = "aggregate"
    warmup: int = 0

    asks: ClassVar[bool] = True  # a split calls on the clients that did not take part

    def __post_init__(self) -> None:
        for name, allowed in (("loss", ("sum", "mean")), ("reading", ("aggregate", "pairwise"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {allowed}")

    def scored(self, state: State, fed: Federation) -> State:
        """Keeps each client's test loss under its cluster's model: the next round's evaluate(w^t)."""
        loss = evaluate(self.train.model, state.models, state.labels, fed)[1].nan_to_num()  # (N,)
        return state._replace(memory={**state.memory, "loss": loss})

    def choose(self, state: State, fed: Federation, seed: int, t: int) -> Tensor:
        return sample_within(fed, self.fraction, state.labels, seed, t)  # l.3-4, of every cluster

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        if len(state.memory.get("loss", ())) != len(fed):  # the first round, newcomers
            state = self.scored(state, fed)
        new, chosen, theta = self.average(state, fed, seed, t)  # l.3-7
        new, trained, start = self.scored(new, fed), chosen, state.labels[chosen]
        update, dw = theta - state.models[start], new.models - state.models  # (n, P), (K, P)
        dloss, angle = torch.full((2, len(fed)), torch.nan)
        for k in start.unique().tolist():
            members, who, own = (state.labels == k).nonzero()[:, 0], chosen[start == k], update[start == k]  # C, S^t
            count, change = fed.mask_test[members].sum(1), (new.memory["loss"] - state.memory["loss"])[members]
            batches = ceil(count.sum() / BATCH) if self.loss == "sum" else 1
            gap = float((change * count).sum().abs() / count.sum().clamp_min(1)) * batches  # l.8
            closest = float(cosine_to(own, dw[[k]] if self.reading == "aggregate" else own).min())  # l.9
            dloss[members], angle[members] = gap, closest
            if gap < self.alpha and closest < self.beta and t >= self.warmup and len(who) > 1:  # l.10
                asked = members[~torch.isin(members, who)] if self.asks else members[:0]
                if len(asked):
                    w = state.models[k].expand(len(asked), -1)
                    own = torch.cat([own, self.train(w, fed, asked, seed, t) - w])
                    trained = torch.cat([trained, asked])
                new = self.split(new, fed, state.models[k], torch.cat([who, asked]), own, len(who))  # l.11
        info = {"splits": len(new.models) - len(state.models), "dloss": dloss, "theta": angle}
        return new, cost(new, trained, extra=len(trained) - len(chosen)) | info  # l.12

    def split(self, state: State, fed: Federation, start: Tensor, who: Tensor, update: Tensor, sampled: int) -> State:
        """Cluster(S^t, C): the cluster keeps those nearer to one anchor, a new one gets the others; S^t leads `who`."""
        order = fed.ids[who[:sampled]].argsort()  # which cluster is new must not depend on the order of the clients
        similar = cosine(update[order]).fill_diagonal_(torch.inf)  # (m, m)
        right, left = divmod(int(similar.argmin()), sampled)  # Cluster l.1, deviation 1
        near = cosine_to(update, update[order[[right, left]]])  # (C, P), (2, P) -> (C, 2)
        goes = who[near[:, 0] <= near[:, 1]]  # Cluster l.2-6
        if len(goes) == len(who):  # anchors that do not differ: one side would be empty
            return state
        models = torch.cat([state.models, state.models[state.labels[goes[:1]]]])
        return state._replace(models=models, labels=state.labels.index_fill(0, goes, len(state.models)))  # Cluster l.7


@dataclass(frozen=True)
class FedACP(FedAC):
    """FedAC, partial (named but not defined by Hsu et al. 2023): a split asks nobody who did not take part.

    The others stay in the cluster that keeps the number. At its next participation such a client trains from the model
    that was split, so that its update compares, goes to the side whose mean update is nearer, and counts in the mean
    from then on: one participation for each split that it missed. `memory`: of each split `parent`, `origin` model and
    two `directions`; of each client how many splits it has `seen`.
    """

    begins_as: ClassVar[str] = "FedAvg"
    asks = False

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        state, seen = super().init(theta, fed, seed), torch.zeros(len(fed), dtype=torch.long)
        none = {"parent": seen[:0], "origin": theta[None][:0], "directions": theta.expand(1, 2, -1)[:0]}
        return state._replace(memory={**none, "seen": seen})

    def admit(self, state: State, fed: Federation, seed: int) -> State:
        seen, splits = state.memory["seen"], len(state.memory["parent"])  # newcomers choose among all there are
        seen = torch.cat([seen, seen.new_full((len(fed) - len(seen),), splits)])
        return super().admit(state._replace(memory={**state.memory, "seen": seen}), fed, seed)

    def missed(self, state: State, clients: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each client missed a split of its cluster, and the first such split."""
        parent, seen = state.memory["parent"], state.memory["seen"][clients, None]
        open_ = (torch.arange(len(parent)) >= seen) & (parent == state.labels[clients, None])  # (n, splits)
        return open_.any(1), open_.int().argmax(1) if len(parent) else torch.zeros_like(clients)

    def choose(self, state: State, fed: Federation, seed: int, t: int) -> Tensor:
        chosen = super().choose(state, fed, seed, t)
        return chosen[~self.missed(state, chosen)[0]]

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        new, info = super().step(state, fed, seed, t)
        chosen = super().choose(state, fed, seed, t)
        waits, first = self.missed(state, chosen)
        if not waits.any():
            return new, info
        late, first, memory = chosen[waits], first[waits], new.memory
        start, sides = memory["origin"][first], memory["directions"][first]  # (n, P), (n, 2, P)
        update = self.train(start, fed, late, seed, t) - start
        near = torch.cat([cosine_to(u, d) for u, d in zip(update[:, None], sides, strict=True)])  # (n, 2)
        side = torch.where(near[:, 0] > near[:, 1], new.labels[late], first + 1)  # split s made cluster s + 1
        memory = {**memory, "seen": memory["seen"].index_copy(0, late, first + 1)}
        new = self.scored(State(new.models, new.labels.index_copy(0, late, side), memory), fed)
        return new, info | cost(new, torch.cat([info["trained"].nonzero()[:, 0], late]))

    def split(self, state: State, fed: Federation, start: Tensor, who: Tensor, update: Tensor, sampled: int) -> State:
        new, memory = super().split(state, fed, start, who, update, sampled), state.memory
        if new is state:
            return state
        goes = new.labels[who] == len(state.models)
        sides = torch.stack([update[~goes].mean(0), update[goes].mean(0)])  # (2, P)
        add = {"parent": state.labels[who[:1]], "origin": start[None], "directions": sides[None]}
        seen = memory["seen"].index_fill(0, who, len(memory["parent"]) + 1)
        grown = {name: torch.cat([memory[name], value]) for name, value in add.items()}
        return new._replace(memory={**memory, **grown, "seen": seen})
