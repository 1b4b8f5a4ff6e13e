"""Joint: every device gets all K models and picks its cluster by loss and gradient, in every round.

Lin, Chen, Yang, Wu, Liu: A Joint Gradient and Loss Based Clustered Federated Learning Design.
arXiv 2311.13665.

`info`: `train_loss`, the mean loss of the picked models on the round's mini-batches; `empty`, the
clusters that nobody picked (before the rescue). K models go down to each device, one comes up.

Deviations:
(1) `sign="descent"`: dw is a descent step, so Eq. 3 as printed rewards gradients that oppose it;
    the default compares -grad with dw, "printed" the gradient itself.
(2) `loss="mean"`: the sum of Eq. 1 would swamp lambda; as an option it enters Eqs. 3 and 4, never
    the step of Eq. 5.
(3) Without a last update (t = 0) the loss alone decides.
(4) `inits="independent"`: K independent models, "perturbed": one model and K - 1 noisy copies.
(5) Newcomers pick like all others in the next step, so nothing is done to admit them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedclust import fast
from fedclust.algorithms.base import Info, Method, State, cost
from fedclust.algorithms.ifca import Batch, first_batches
from fedclust.checks import Count, require
from fedclust.federation import Federation
from fedclust.rng import key, stream
from fedclust.training import LocalSGD, check_finite

PLAIN = {  # the trainer's fields that must not change the step
    "epochs": (1,), "steps": (None, 1), "momentum": (0,), "weight_decay": (0,), "prox": (0,),
    "optimizer": ("sgd",), "augment": (None,), "autocast": (False,),
}  # fmt: skip
NOISE = 0.1  # of a perturbed copy, in standard deviations of the model's numbers


class Seen(NamedTuple):
    """What the devices see of the models."""

    loss: Tensor  # (N, K)  mean over the device's mini-batch
    dot: Tensor  # (N, K)  <gradient, the model's last update>
    norm: Tensor  # (N, K)  |gradient|
    update: Callable[[Tensor, float], Tensor]  # clusters (N,), learning rate -> models (K, P)


@dataclass(frozen=True)
class Joint(Method):
    """Lin et al. 2023, Algorithm 1: a device picks argmax lambda S - (1 - lambda) L."""

    train: LocalSGD  # one step of its lr on one batch of its size
    k: Count = 4
    lam: Annotated[float, "[0, 1]"] = 0.2
    sign: Literal["descent", "printed"] = "descent"
    loss: Literal["mean", "sum"] = "mean"
    similarity: Literal["cosine", "euclidean"] = "cosine"
    rescue: bool = True
    inits: Literal["independent", "perturbed"] = "independent"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            isinstance(self.train, LocalSGD) and not hasattr(self.train, "spent"),
            f"train={type(self.train).__name__}: Joint's step (Eq. 5) is plain and adds no noise, "
            "use LocalSGD(model, lr, batch=...)",
        )
        for name, plain in PLAIN.items():
            value = getattr(self.train, name)
            require(
                value in plain,
                f"train with {name}={value!r}: a device takes one plain step (Eq. 5), "
                f"leave {name} at {plain[0]!r}",
            )

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        require(self.k <= len(fed), f"k={self.k}: more clusters than the {len(fed)} devices")
        models = [theta]
        for k in range(1, self.k):
            if self.inits == "independent":
                models.append(self.train.model.init(seed, k).to(theta))
            else:
                noise = torch.randn(len(theta), generator=stream(seed, "perturb", k))
                models.append(theta + NOISE * theta.std() * noise.to(theta))
        return State(torch.stack(models), torch.zeros(len(fed), dtype=torch.long))

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        w, before = state.models, state.memory.get("previous")  # l.3
        dw = None if before is None or self.lam == 0 else w - before  # Eq. 2  (K, P)
        batch = first_batches(self.train, fed, seed, t)
        seen = fast.choose(self, w, dw, batch) if fast.chooses(self, w) else self.look(w, dw, batch)
        check_finite(seen.loss, fed.ids)
        labels = self.score(seen, dw, batch[2].sum(1, keepdim=True)).argmax(1)  # l.10, Eq. 4  (N,)
        empty = self.k - len(labels.unique())
        if empty and self.rescue:  # Sec. II-C
            lots = torch.tensor([key(seed, "rescue", t, i) for i in fed.ids.tolist()])
            labels = labels.index_copy(0, lots.argsort()[: self.k], torch.arange(self.k))
        models = seen.update(labels, self.train.lr * self.train.decay**t)  # l.11, l.14
        picked = float(seen.loss.gather(1, labels[:, None]).mean())
        info = cost(state, torch.arange(len(fed)), down=self.k * len(fed))
        return State(models, labels, {"previous": w}), info | {"train_loss": picked, "empty": empty}

    def look(self, w: Tensor, dw: Tensor | None, batch: Batch) -> Seen:
        """Losses and gradients of all devices under all models, and the step that follows."""
        loss, dot, norm = w.new_zeros(3, len(batch[0]), self.k)
        for k, row in enumerate(w):
            net = self.train.model.module(row).eval()
            weights = list(net.parameters())
            for i, (x, y, real) in enumerate(zip(*batch, strict=True)):
                own = cross_entropy(net(x[real].to(w)), y[real])  # l.5, Eq. 1
                loss[i, k] = own.detach()
                if dw is not None:
                    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(own, weights)])
                    dot[i, k] = gradient @ dw[k, : len(gradient)]  # l.6-7; buffers have none
                    norm[i, k] = gradient.norm()
        return Seen(loss, dot, norm, lambda labels, lr: self.update(w, batch, labels, lr))

    def score(self, seen: Seen, dw: Tensor | None, count: Tensor) -> Tensor:
        """lambda * S + (1 - lambda) * (-L), (N, K); `count` (N, 1) are the devices' samples."""
        scale = count if self.loss == "sum" else 1
        loss = scale * seen.loss  # Eq. 1
        if dw is None:
            return -loss
        toward = -1 if self.sign == "descent" else 1
        dot, norm, length = toward * scale * seen.dot, scale * seen.norm, dw.norm(dim=1)
        if self.similarity == "cosine":
            similar = dot / (norm * length).clamp_min(1e-30)  # l.8, Eq. 3
        else:
            similar = -(norm**2 + length**2 - 2 * dot).clamp_min(0).sqrt()  # -|gradient - dw|
        return self.lam * similar - (1 - self.lam) * loss

    def update(self, w: Tensor, batch: Batch, labels: Tensor, lr: float) -> Tensor:
        """The mean over each cluster's devices of their models after one step; others stay.

        All devices of a cluster start from one model, so that is one step along the mean of their
        gradients.
        """
        (x, y, mask), model, new = batch, self.train.model, w.clone()
        for k in labels.unique().tolist():
            members = (labels == k).nonzero()[:, 0]  # Eq. 6
            net = model.module(w[k]).eval()
            for i in members.tolist():
                loss = cross_entropy(net(x[i][mask[i]].to(w)), y[i][mask[i]])
                (loss / len(members)).backward()
            with torch.no_grad():
                for weight in net.parameters():
                    if weight.grad is not None:
                        weight.sub_(weight.grad, alpha=lr)  # Eq. 5, Eq. 7
            new[k] = model.row(net)
        return new

    def trains_newcomers(self, state: State) -> bool:
        return False
