"""FedAC and FedACP: a cluster splits in two when its loss stands still while its clients' updates disagree.

Hsu, Keoy, Chen, Chao, Lai: Personalized Federated Learning Algorithm with Adaptive Clustering for Non-IID IoT Data.
Sensors 2023, 23, 9016.

`info`: `splits` of this round and, per client, the two gates of the cluster it trained in: `dloss` = |change of the
loss| (open below alpha) and `theta` = the smallest cosine (open below beta).

Deviations: (1) the anchors are the two updates with the *smallest* cosine: the listing prints the maximum, the text
says farthest; (2) `loss="sum"`: the mean loss on the test samples of the cluster's clients times their number of 32s,
which is the sum over batches if the last one is full, in any order of the samples; (3) clients that did not take part
train once more from the model of that round, only to be placed; (4) both children start from the parent's new model;
(5) one participant cannot disagree: a cluster that samples one never splits; (6) FedACP is named in the paper but not
defined, see there; (7) newcomers, of whom the paper does not speak, join as in `Method.admit`.
"""

from dataclasses import dataclass
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
        averaged, chosen, theta = self.average(state, fed, seed, t)  # l.3-7
        start = state.labels[chosen]
        update = theta - state.models[start]  # (n, P)
        new = self.scored(self.place(averaged, chosen, update), fed)
        change, stay = new.memory["loss"] - state.memory["loss"], new.labels == state.labels
        dloss, angle = torch.full((2, len(fed)), torch.nan, dtype=theta.dtype)
        trained = chosen
        for k in start.unique().tolist():
            members, mine = (stay & (state.labels == k)).nonzero()[:, 0], stay[chosen] & (start == k)
            if not mine.any():
                continue
            who, mean = chosen[mine], averaged.models[k] - state.models[k]  # S^t
            count = fed.mask_test[members].sum(1)
            mean_change = (change[members] * count).sum() / count.sum().clamp_min(1)
            batches = (count.sum() / BATCH).ceil() if self.loss == "sum" else 1
            dloss[members] = (mean_change * batches).abs()  # l.8
            closeness = cosine_to(update[mine], mean[None] if self.reading == "aggregate" else update[mine])
            angle[members] = closeness.min()  # l.9
            split = dloss[who[0]] < self.alpha and angle[who[0]] < self.beta  # l.10
            if split and t >= self.warmup and len(who) > 1:
                asked = members[~torch.isin(members, who)] if self.asks else members[:0]
                late = self.train(state.models[k].expand(len(asked), -1), fed, asked, seed, t) - state.models[k]
                everyone, updates = torch.cat([who, asked]), torch.cat([update[mine], late])
                new = self.split(new, fed, k, everyone, updates, len(who))  # l.11
                trained = torch.cat([trained, asked])
        info = {"splits": len(new.models) - len(state.models), "dloss": dloss, "theta": angle}
        return new, cost(new, trained, extra=len(trained) - len(chosen)) | info  # l.12

    def place(self, state: State, chosen: Tensor, update: Tensor) -> State:
        return state  # nobody waits for a place

    def split(self, state: State, fed: Federation, k: int, who: Tensor, update: Tensor, sampled: int) -> State:
        """Cluster(S^t, C): k keeps who is nearer to one anchor, a new cluster gets the others; S^t leads `who`."""
        order = fed.ids[who[:sampled]].argsort()  # which cluster is new must not depend on the order of the clients
        similar = cosine(update[order]).fill_diagonal_(torch.inf)  # (m, m)
        right, left = divmod(int(similar.argmin()), sampled)  # Cluster l.1, deviation 1
        near = cosine_to(update, update[order[[right, left]]])  # (C, P), (2, P) -> (C, 2)
        goes = who[near[:, 0] <= near[:, 1]]  # Cluster l.2-6
        if len(goes) == len(who):  # anchors that do not differ: one side would be empty
            return state
        labels = state.labels.index_fill(0, goes, len(state.models))
        return state._replace(models=torch.cat([state.models, state.models[k][None]]), labels=labels)  # Cluster l.7


@dataclass(frozen=True)
class FedACP(FedAC):
    """FedAC, partial (named but not defined by Hsu et al. 2023): a split asks nobody who did not take part.

    The others stay in the cluster that keeps the number and are placed at their next participation, by the cosine of
    their update to the mean updates of both sides. A client that moves counts in its new cluster from the round after:
    what it returned started from the old model. `memory`: `parent` and the two `directions` of each split, and how many
    splits each client has `seen`; one update may answer several.
    """

    asks: ClassVar[bool] = False

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        state, none = super().init(theta, fed, seed), torch.zeros(len(fed), dtype=torch.long)
        memory = {"parent": none[:0], "directions": theta.new_empty(0, 2, len(theta)), "seen": none}
        return state._replace(memory={**state.memory, **memory})

    def admit(self, state: State, fed: Federation, seed: int) -> State:
        seen, splits = state.memory["seen"], len(state.memory["parent"])
        seen = torch.cat([seen, seen.new_full((len(fed) - len(seen),), splits)])  # newcomers choose among all there are
        return super().admit(state._replace(memory={**state.memory, "seen": seen}), fed, seed)

    def weigh(self, state: State, theta: Tensor, fed: Federation, chosen: Tensor) -> Tensor:
        start = state.labels[chosen]
        stay = self.place(state, chosen, theta - state.models[start]).labels[chosen] == start
        return super().weigh(state, theta, fed, chosen) * stay

    def place(self, state: State, chosen: Tensor, update: Tensor) -> State:
        memory, labels = state.memory, state.labels[chosen]
        seen = memory["seen"].index_fill(0, chosen, len(memory["parent"]))
        for s, (parent, directions) in enumerate(zip(memory["parent"], memory["directions"], strict=True)):
            near = cosine_to(update, directions)  # (n, P), (2, P) -> (n, 2)
            goes = (memory["seen"][chosen] <= s) & (labels == parent) & (near[:, 0] <= near[:, 1])
            labels = torch.where(goes, s + 1, labels)  # split s made cluster s + 1
        return state._replace(labels=state.labels.index_copy(0, chosen, labels), memory={**memory, "seen": seen})

    def split(self, state: State, fed: Federation, k: int, who: Tensor, update: Tensor, sampled: int) -> State:
        new, memory = super().split(state, fed, k, who, update, sampled), state.memory
        if new is state:
            return state
        sides = torch.stack([update[new.labels[who] == side].mean(0) for side in (k, len(state.models))])  # (2, P)
        parent = torch.cat([memory["parent"], torch.tensor([k])])
        directions = torch.cat([memory["directions"], sides[None]])
        seen = memory["seen"].index_fill(0, who, len(parent))
        return new._replace(memory={**memory, "parent": parent, "directions": directions, "seen": seen})
