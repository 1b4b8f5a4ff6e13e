"""FedAC and FedACP: a cluster is divided when its loss stands still and its updates disagree.

Hsu et al.: Personalized Federated Learning Algorithm with Adaptive Clustering ... Sensors 2023, 23,
9016.

`info`: `splits` of this round and, per client, the two gates of the cluster it trained in: `dloss`,
|change of the loss| (open below alpha), and `theta`, the smallest cosine (open below beta).

Deviations:
(1) The anchors have the smallest cosine: the listing prints the maximum, the text says farthest.
(2) What is evaluated on which images is not printed: the loss of each cluster's model on its own
    clients' validation samples, so that no gate sees what the method is scored on. Without a
    validation half it is their test samples, with a warning.
(3) `loss="sum"`: the clients' mean loss times their number of batches of 32, which is the sum over
    batches if all are full.
(4) Clients that did not take part train once more from the same model, only to be placed.
(5) Both children start from the parent's new model.
(6) A cluster that samples one client cannot disagree.
(7) FedACP is named in the paper, not defined.
(8) Newcomers, which the paper does not treat, join as in `Method.admit`.
"""

import warnings
from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedclust.algorithms.base import Info, State, cost, sample_within
from fedclust.algorithms.fedavg import FedAvg
from fedclust.checks import Number, Share
from fedclust.federation import Federation
from fedclust.geometry import cosine
from fedclust.metrics import evaluate

BATCH = 32  # images per batch whose losses are summed


@dataclass(frozen=True)
class FedAC(FedAvg):
    """Hsu et al. 2023, Algorithm 2: divide a cluster if |dloss| < alpha and a cosine < beta.

    The cosine is that of a client's update and the mean update (`reading="aggregate"`), or of two
    clients' updates ("pairwise"). No epsilon covers the losses, which clients report as they are.
    """

    reveals = ("losses",)
    begins_as: ClassVar[str] = "FedAvg"
    asks: ClassVar[bool] = True  # a division trains the clients that did not take part

    fraction: Share = 0.1
    alpha: Annotated[float, "[0, inf]"] = 5.0
    beta: Annotated[float, "[-inf, inf]"] = 0.0  # the cosine of 90 degrees
    loss: Literal["sum", "mean"] = "sum"
    reading: Literal["aggregate", "pairwise"] = "aggregate"
    warmup: Number = 0

    def scored(self, state: State, fed: Federation) -> State:
        """Remember each client's loss under its cluster's model, the next evaluate(w^t)."""
        half = gate_half(fed)
        loss = evaluate(self.train.model, state.models, state.labels, fed, half)[1].nan_to_num()
        return state._replace(memory={**state.memory, "loss": loss})  # (N,)

    def choose(self, state: State, fed: Federation, seed: int, t: int) -> Tensor:
        return sample_within(fed, self.fraction, state.labels, seed, t)  # l.3-4, of every cluster

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        if len(state.memory.get("loss", ())) != len(fed):  # the first round, newcomers
            state = self.scored(state, fed)
        new, chosen, theta = self.average(state, fed, seed, t)  # l.3-7
        new, trained, cluster = self.scored(new, fed), chosen, state.labels[chosen]
        change = new.memory["loss"] - state.memory["loss"]  # (N,)
        count = fed.half(gate_half(fed))[2].sum(1)  # (N,)
        update, mean = theta - state.models[cluster], new.models - state.models  # (n, P), (K, P)
        dloss, angle = torch.full((2, len(fed)), torch.nan)
        for k in cluster.unique().tolist():
            members, present = (state.labels == k).nonzero()[:, 0], chosen[cluster == k]  # C, S^t
            own = update[cluster == k]
            gap = self.gap(change[members], count[members])  # l.8
            other = mean[[k]] if self.reading == "aggregate" else own
            closest = float(cosine(own, other).min())  # l.9
            dloss[members], angle[members] = gap, closest
            open_ = gap < self.alpha and closest < self.beta  # l.10
            if open_ and t >= self.warmup and len(present) > 1:
                absent = members[~torch.isin(members, present)] if self.asks else members[:0]
                if len(absent):
                    received = state.models[k].expand(len(absent), -1)
                    late = self.train(received, fed, absent, seed, t) - received
                    own, trained = torch.cat([own, late]), torch.cat([trained, absent])
                clients = torch.cat([present, absent])
                new = self.divide(new, fed, state.models[k], clients, own, len(present))  # l.11
        info = {"splits": len(new.models) - len(state.models), "dloss": dloss, "theta": angle}
        return new, cost(new, trained, extra=len(trained) - len(chosen)) | info  # l.12

    def gap(self, change: Tensor, count: Tensor) -> float:
        """|change of a cluster's loss| from its clients' changes and numbers of images."""
        batches = ceil(count.sum() / BATCH) if self.loss == "sum" else 1
        return float((change * count).sum().abs() / count.sum().clamp_min(1)) * batches

    def divide(
        self, state: State, fed: Federation, start: Tensor, clients: Tensor, update: Tensor, n: int
    ) -> State:
        """Cluster(S^t, C): clients nearer to the second anchor move to a new cluster.

        The clients and their updates from the model `start` begin with the `n` sampled ones, among
        which the anchors are.
        """
        order = fed.ids[clients[:n]].argsort()  # clients' positions must not matter
        similar = cosine(update[order]).fill_diagonal_(torch.inf)  # (n, n)
        right, left = divmod(int(similar.argmin()), n)  # Cluster l.1, deviation 1
        near = cosine(update, update[order[[right, left]]])  # (C, P), (2, P) -> (C, 2)
        moving = clients[near[:, 0] <= near[:, 1]]  # Cluster l.2-6
        if len(moving) == len(clients):  # the anchors do not differ: one side would be empty
            return state
        models = torch.cat([state.models, state.models[state.labels[moving[:1]]]])
        labels = state.labels.index_fill(0, moving, len(state.models))  # Cluster l.7
        return state._replace(models=models, labels=labels)


def gate_half(fed: Federation) -> str:
    """The half whose loss the gate reads."""
    if fed.mask_val is not None:
        return "val"
    warnings.warn(
        "FedAC's gate reads the test half that it is scored on: ask the partitioner for a "
        "validation half (validation=0.1)",
        stacklevel=2,
    )
    return "test"


@dataclass(frozen=True)
class FedACP(FedAC):
    """FedAC, partial (named, not defined, by Hsu et al. 2023): a division asks only participants.

    The others stay in the cluster that keeps the number. At its next participation such a client
    trains from the model that was divided, so that its update compares. It goes to the side whose
    mean update is nearer, and counts in the mean from then on: one participation for each division
    that it missed. `memory` has of each division the `parent`, the `origin` model and the two
    `directions`, and of each client how many divisions it has `seen`.
    """

    begins_as: ClassVar[str] = "FedAvg"
    asks = False

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        state, seen = super().init(theta, fed, seed), torch.zeros(len(fed), dtype=torch.long)
        memory = {"parent": seen[:0], "origin": theta[None][:0], "seen": seen}
        return state._replace(memory=memory | {"directions": theta.expand(1, 2, -1)[:0]})

    def admit(self, state: State, fed: Federation, seed: int, t: int) -> State:
        seen, divisions = state.memory["seen"], len(state.memory["parent"])
        newcomers = seen.new_full((len(fed) - len(seen),), divisions)  # they choose among all
        memory = {**state.memory, "seen": torch.cat([seen, newcomers])}
        return super().admit(state._replace(memory=memory), fed, seed, t)

    def missed(self, state: State, clients: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each client missed a division of its cluster, and the first such division."""
        parent, seen = state.memory["parent"], state.memory["seen"][clients, None]
        later = torch.arange(len(parent)) >= seen
        waiting = later & (parent == state.labels[clients, None])  # (n, divisions)
        first = waiting.int().argmax(1) if len(parent) else torch.zeros_like(clients)
        return waiting.any(1), first

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
        received, sides = memory["origin"][first], memory["directions"][first]  # (n, P), (n, 2, P)
        update = self.train(received, fed, late, seed, t) - received
        near = torch.cat([cosine(u, d) for u, d in zip(update[:, None], sides, strict=True)])
        stays = near[:, 0] > near[:, 1]  # (n, 2) -> (n,)
        side = torch.where(stays, new.labels[late], first + 1)  # division s made cluster s + 1
        memory = {**memory, "seen": memory["seen"].index_copy(0, late, first + 1)}
        labels = new.labels.index_copy(0, late, side)
        new = self.scored(State(new.models, labels, memory), fed)
        return new, info | cost(new, torch.cat([info["trained"].nonzero()[:, 0], late]))

    def divide(
        self, state: State, fed: Federation, start: Tensor, clients: Tensor, update: Tensor, n: int
    ) -> State:
        new, memory = super().divide(state, fed, start, clients, update, n), state.memory
        if new is state:
            return state
        moving = new.labels[clients] == len(state.models)
        sides = torch.stack([update[~moving].mean(0), update[moving].mean(0)])  # (2, P)
        add = {"origin": start, "directions": sides, "parent": state.labels[clients[0]]}
        grown = {name: torch.cat([memory[name], value[None]]) for name, value in add.items()}
        seen = memory["seen"].index_fill(0, clients, len(memory["parent"]) + 1)
        return new._replace(memory={**memory, **grown, "seen": seen})
