"""IFCA: every client gets all K models and trains the one with the least loss on its data.

Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning.
NeurIPS 2020, arXiv 2006.04088. Code: github.com/jichan3751/ifca.

`info`: `train_loss`, the mean loss of the picked models on what the choice is made on; `empty`, the
clusters that nobody picked: their models stay. K models go down to each participant, one comes up.
The picked cluster is sent too.

Deviations:
(1) The models are drawn as this library draws them.
(2) The authors' code restarts only on synthetic data: ten draws for each data set, of which the one
    nearest to the true parameters counts. On MNIST and CIFAR-10 it takes one draw per data seed,
    without restarts; on FEMNIST the models are first trained on random groups. Here `restart` says
    which draw a run starts from, and `train_loss` which of several runs to keep.
(3) Newcomers pick like all others in the next step.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedclust.algorithms.base import Info, Method, State, cost, mean_by, sample
from fedclust.checks import Count, Number, Share, require
from fedclust.federation import Federation
from fedclust.metrics import evaluate
from fedclust.training import LocalSGD, check_finite

Batch = tuple[Tensor, Tensor, Tensor]  # images (N, B, ...), labels (N, B), which are real (N, B)


@dataclass(frozen=True)
class IFCA(Method):
    """Ghosh et al. 2020, Algorithm 1: a client trains the model with the least loss on its data.

    `averages`: "models" after the trainer's steps or epochs (option II), "gradients" of one step
    (option I). The cluster is chosen on "all" of a client's samples, as the authors do, or on the
    "batch" that its training begins with. No epsilon covers the choice, which a client sends.
    """

    reveals = ("chosen clusters",)

    k: Count = 2
    averages: Literal["models", "gradients"] = "models"
    chosen_on: Literal["all", "batch"] = "all"
    fraction: Share = 1.0
    restart: Number = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        steps, private = getattr(self.train, "steps", None), hasattr(self.train, "spent")
        require(
            self.averages == "models" or steps == 1,
            f"averages='gradients' with steps={steps}: a gradient is one step, give steps=1",
        )
        require(
            self.chosen_on == "all" or (isinstance(self.train, LocalSGD) and not private),
            f"chosen_on='batch' with {type(self.train).__name__}: only LocalSGD has the batches "
            "to choose on, use chosen_on='all'",
        )

    def init(self, theta: Tensor, fed: Federation, seed: int) -> State:
        require(self.k <= len(fed), f"k={self.k}: more clusters than the {len(fed)} clients")
        draws = range(self.k * self.restart, self.k * (self.restart + 1))
        models = torch.stack([self.train.model.init(seed, k).to(theta) for k in draws])
        return State(models, torch.zeros(len(fed), dtype=torch.long))

    def step(self, state: State, fed: Federation, seed: int, t: int) -> tuple[State, Info]:
        chosen = sample(fed, self.fraction, seed, t)  # l.4  M_t
        loss = self.losses(state.models, fed.take(chosen), seed, t)  # (n, K)
        check_finite(loss, fed.ids[chosen])
        picked = loss.argmin(1)  # l.7
        theta = self.train(state.models[picked], fed, chosen, seed, t)  # l.10, l.14  (n, P)
        models = mean_by(theta, picked, torch.ones(len(chosen)), state.models)  # l.19
        if self.averages == "gradients":  # l.17: over all participants, not the cluster's
            shares = picked.bincount(minlength=self.k).to(models) / len(chosen)
            models = state.models + shares[:, None] * (models - state.models)
        labels = state.labels.index_copy(0, chosen, picked)
        info = cost(state, chosen, down=self.k * len(chosen))
        info |= {"train_loss": float(loss.amin(1).mean())}
        return State(models, labels), info | {"empty": self.k - len(picked.unique())}

    def losses(self, models: Tensor, fed: Federation, seed: int, t: int) -> Tensor:
        """Mean loss of each model on each client's samples, (N, K)."""
        if self.chosen_on == "batch":
            x, y, mask = first_batches(self.train, fed, seed, t)  # type: ignore[arg-type]
            fed = replace(fed, x=x, y=y, mask=mask)
        everyone = torch.zeros(len(fed), dtype=torch.long)
        each = [evaluate(self.train.model, row[None], everyone, fed, "train")[1] for row in models]
        return torch.stack(each, 1)

    def trains_newcomers(self, state: State) -> bool:
        return False


def first_batches(train: LocalSGD, fed: Federation, seed: int, t: int) -> Batch:
    """The batches that training begins with."""
    plans = [train.batches(fed, i, seed, t)[0] for i in range(len(fed))]
    where = pad_sequence(plans, batch_first=True, padding_value=-1).to(fed.x.device)  # (N, B)
    rows = torch.arange(len(fed))[:, None]
    return fed.x[rows, where], fed.y[rows, where], where >= 0
