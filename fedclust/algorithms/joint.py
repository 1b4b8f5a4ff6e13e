"""Joint and IFCA: every device gets all K models and picks its cluster itself, in every round.

Lin, Chen, Yang, Wu, Liu: A Joint Gradient and Loss Based Clustered Federated Learning Design. arXiv 2311.13665.
IFCA: Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning. NeurIPS 2020.

`info`: `train_loss`, the mean loss of the picked models on the round's mini-batches; `empty`, the clusters that nobody
picked (before the rescue). K models go down to each device, one comes up.

Deviations: (1) `sign="descent"`: dw is a descent step, so Eq. 3 as printed rewards gradients that oppose it; the
default compares -grad with dw, "printed" the gradient itself; (2) `loss="mean"`: the sum of Eq. 1 would swamp lambda;
as an option it enters Eqs. 3 and 4, never the step of Eq. 5; (3) without a last update (t = 0) the loss alone decides;
(4) `inits="independent"`: K independent models, "perturbed": one model and K - 1 noisy copies; (5) newcomers pick like
all others in the next step, so nothing is done to admit them.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedclust.algorithms.base import Info, Method, State, cost
from fedclust.decision import chosen_step, decisions, room
from fedclust.federation import Federation
from fedclust.rng import key, stream
from fedclust.training import LocalSGD, check_finite

NOISE = 0.1  # of a perturbed copy, in standard deviations of the model's numbers


@dataclass(frozen=True)
class Joint(Method):
    """Lin et al. 2023, Algorithm 1: a device picks argmax lambda * similarity - (1 - lambda) * loss."""

    train: LocalSGD  # one step of its lr on one batch of its size
    k: int = 4
    lam: float = 0.2
    sign: str = "descent"
    loss: str = "mean"
    similarity: str = "cosine"
    rescue: bool = True
    inits: str = "independent"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("sign", ("descent", "printed")),
            ("loss", ("mean", "sum")),
            ("similarity", ("cosine", "euclidean")),
            ("inits", ("independent", "perturbed")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {allowed}")
        if not 0 <= self.lam <= 1 or self.k < 1:
            raise ValueError(f"lam={self.lam}, k={self.k}: lambda must be in [0, 1] (0 is IFCA), k at least 1")
        more = [name for name in ("momentum", "weight_decay", "prox", "augment") if getattr(self.train, name, name)]
        if more or self.train.optimizer != "sgd":
            raise ValueError(
                f"train={self.train}: devices take one plain step (Eq. 5), use LocalSGD(model, lr, batch=...)"
            )

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        if self.k > len(fed):
            raise ValueError(f"k={self.k}: more clusters than the {len(fed)} devices")
        if self.inits == "independent":
            others = [self.train.model.init(seed, k).to(theta) for k in range(1, self.k)]
        else:
            noise = [torch.randn(len(theta), generator=stream(seed, "perturb", k)) for k in range(1, self.k)]
            others = [theta + NOISE * theta.std() * e.to(theta) for e in noise]
        return State(torch.stack([theta, *others]), torch.zeros(len(fed), dtype=torch.long))

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        w, before = state.models, state.memory.get("previous")  # l.3
        x, y, mask = self.batch(fed, seed, t)
        dw = None if before is None or self.lam == 0 else w - before  # Eq. 2  (K, P)
        count = mask.sum(1, keepdim=True)
        reach, passes = (self.margin(count), self.toward), room(self.train.model, w, y)
        loss, dot, norm = decisions(self.train.model, w, dw, x, y, mask, *reach, passes)  # l.6-7  (N, K) each
        check_finite(loss, fed.ids)
        labels = self.score(loss, dot, norm, dw, count).argmax(1)  # l.10, Eq. 4  (N, K) -> (N,)
        empty = self.k - len(labels.unique())
        if empty and self.rescue:  # Sec. II-C
            lots = torch.tensor([key(seed, "rescue", t, i) for i in fed.ids.tolist()])
            labels = labels.index_copy(0, lots.argsort()[: self.k], torch.arange(self.k))
        lr = self.train.lr * self.train.decay**t
        models = chosen_step(self.train.model, w, labels, x, y, mask, lr, passes)  # l.11, l.14
        picked = float(loss.gather(1, labels[:, None]).mean())
        info = cost(state, torch.arange(len(fed)), down=self.k * len(fed)) | {"train_loss": picked, "empty": empty}
        return State(models, labels, {"previous": w}), info

    def batch(self, fed: Federation, seed: int, t: int) -> tuple[Tensor, Tensor, Tensor]:
        """One mini-batch of every device, the one `train` would begin with: (N, B, ...), (N, B), (N, B)."""
        plans = [self.train.batches(fed, i, seed, t)[0] for i in range(len(fed))]
        where = torch.nn.utils.rnn.pad_sequence(plans, batch_first=True, padding_value=-1).to(fed.x.device)  # (N, B)
        rows = torch.arange(len(fed))[:, None]
        return fed.x[rows, where], fed.y[rows, where], where >= 0

    def score(self, loss: Tensor, dot: Tensor, norm: Tensor, dw: Tensor | None, count: Tensor) -> Tensor:
        """lambda * S + (1 - lambda) * (-L), all (N, K) from <grad, dw>, |grad| and the loss."""
        scale = count if self.loss == "sum" else 1  # Eq. 1
        if dw is None:
            return -loss * scale
        dot, norm, length = self.toward * scale * dot, scale * norm, dw.norm(dim=1)  # (N, K), (N, K), (K,)
        if self.similarity == "cosine":
            similar = dot / (norm * length).clamp_min(1e-30)  # l.8, Eq. 3
        else:
            similar = -(norm**2 + length**2 - 2 * dot).clamp_min(0).sqrt()
        return self.lam * similar - (1 - self.lam) * loss * scale

    @property
    def toward(self) -> int:
        """Which way along a model's last step a gradient should point."""
        return -1 if self.sign == "descent" else 1

    def margin(self, count: Tensor) -> Tensor:
        """How much more mean loss than the least no cosine can outweigh, (N, 1): 2 lambda / (1 - lambda), and a little.

        Cosines differ by at most 2. A model beyond it is never picked, so its gradient need not be looked at.
        """
        if self.similarity != "cosine" or self.lam == 1:
            return torch.full_like(count, torch.inf, dtype=torch.float)
        return 2.001 * self.lam / (1 - self.lam) / (count if self.loss == "sum" else torch.ones_like(count)) + 1e-4

    def trains_newcomers(self, state: State) -> bool:
        return False


@dataclass(frozen=True)
class IFCA(Joint):
    """Ghosh et al. 2020: the loss alone picks the cluster, i.e. Joint with lambda 0."""

    lam: float = field(default=0.0, init=False)
    sign: str = field(default="descent", init=False)  # neither gradient nor scale matters
    loss: str = field(default="mean", init=False)
    similarity: str = field(default="cosine", init=False)
