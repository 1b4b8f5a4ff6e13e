"""Local training: many clients in one call, from rows of start models to rows of trained ones.

`LocalSGD` has two backends that give the same result. *loop* trains any module, client after client. *stacked* is for
plain perceptrons, whose small matrices leave a processor waiting: it trains all clients at once on (C, out, in)
stacks with the backward pass written by hand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from fedclust.federation import Federation
from fedclust.models import Model, values
from fedclust.rng import stream


class Trainer(Protocol):
    """What a method needs from local training."""

    @property
    def model(self) -> Model: ...

    def __call__(self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int) -> Tensor:
        """Start models (n, P) of the clients at these positions (n,) -> trained models (n, P)."""
        ...


@dataclass(frozen=True)
class LocalSGD:
    """Mini-batch SGD (or Adam) on each client's own samples, `epochs` times over or for a fixed number of `steps`.

    The learning rate of round t is lr * decay**t. `prox` adds mu/2 |w - received model|^2 to the loss. Momentum and
    Adam's moments start fresh in every call. `augment="crop_flip"`: random crop after padding by 4 zeros, random flip.
    """

    model: Model
    lr: float
    epochs: int = 1
    batch: int = 32
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    decay: float = 1.0
    optimizer: str = "sgd"
    augment: str | None = None
    backend: str = "auto"
    device: str = "cpu"
    autocast: bool = False  # bfloat16 arithmetic where PyTorch deems it safe; loop only

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr={self.lr}: must be positive, e.g. 0.1")
        for name in ("epochs", "batch") + (("steps",) if self.steps is not None else ()):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        for name in ("momentum", "weight_decay", "prox"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must not be negative; 0 switches it off")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay={self.decay}: must be in (0, 1]; 1 keeps the learning rate")
        for name, allowed in (
            ("optimizer", ("sgd", "adam")),
            ("augment", (None, "crop_flip")),
            ("backend", ("auto", "stacked", "loop")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {allowed}")
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(f"momentum={self.momentum} with optimizer='adam': Adam has moments of its own, leave it at 0")
        if self.backend == "stacked" and (obstacle := self.not_stackable()):
            raise ValueError(f"backend='stacked' cannot train {obstacle}: use backend='auto' or 'loop'")

    def not_stackable(self) -> str | None:
        """What keeps the stacked backend from doing this work."""
        if not self.model.dense:
            return f"{self.model.name!r}, which is not a plain perceptron (models.mlp)"
        return next((f"with {name}" for name in ("augment", "autocast") if getattr(self, name)), None) or (
            "with Adam" if self.optimizer == "adam" else None
        )

    def __call__(self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int) -> Tensor:
        if theta.shape != (len(clients), self.model.size):
            raise ValueError(
                f"theta is {tuple(theta.shape)}: {len(clients)} clients of {self.model.name!r} need "
                f"{(len(clients), self.model.size)}, one row per client"
            )
        if not len(clients):
            return theta.clone()
        plans = [self.batches(fed, i, seed, t) for i in clients.tolist()]
        loop = self.backend == "loop" or self.not_stackable()
        train = self.loop if loop else self.stacked
        return train(theta.to(self.device), fed, clients, plans, seed, t).to(theta.device)

    def batches(self, fed: Federation, i: int, seed: int, t: int) -> list[Tensor]:
        """The sample positions of each step of client i. The order of epoch e does not depend on how many there are."""
        real, plan, e = fed.mask[i].nonzero()[:, 0].cpu(), [], 0
        if not len(real):
            raise ValueError(f"client {int(fed.ids[i])} has no training samples: leave it out or partition differently")
        while (e < self.epochs) if self.steps is None else (len(plan) < self.steps):
            order = torch.randperm(len(real), generator=stream(seed, "batches", t, int(fed.ids[i]), e))
            plan += real[order].split(self.batch)
            e += 1
        return plan[: self.steps]

    # ---- loop: any module, one client after the other

    def loop(self, theta: Tensor, fed: Federation, clients: Tensor, plans: list[list[Tensor]], seed: int, t: int) -> Tensor:
        lr, out = self.lr * self.decay**t, torch.empty_like(theta)
        net = self.model.module(theta[0]).train()
        row, weights = values(net), list(net.parameters())
        for k, (i, plan) in enumerate(zip(clients.tolist(), plans, strict=True)):
            start = self.model.split(theta[k])
            with torch.no_grad():
                torch._foreach_copy_(row, start)
            moments = [[torch.zeros_like(w) for w in weights] for _ in range(2 if self.optimizer == "adam" else self.momentum > 0)]
            x, y = fed.x[i].to(theta), fed.y[i].to(theta.device)
            crops = stream(seed, "augment", t, int(fed.ids[i]))
            for step, batch in enumerate(plan, 1):
                xb, yb = x[batch], y[batch]
                if self.augment:
                    xb = crop_flip(xb, crops)
                with torch.autocast(theta.device.type, torch.bfloat16, enabled=self.autocast):
                    loss = cross_entropy(net(xb), yb)
                gradients = list(torch.autograd.grad(loss, weights))
                with torch.no_grad():
                    self.update(weights, gradients, moments, start[: len(weights)], lr, step)
            torch.cat([value.detach().flatten() for value in row], out=out[k])
        return out

    def update(
        self, w: list[Tensor], g: list[Tensor], moments: list[list[Tensor]], start: list[Tensor], lr: float, step: int
    ) -> None:
        """One step in place, as torch.optim does it, over all tensors of a model at once."""
        if self.prox:
            torch._foreach_add_(g, w, alpha=self.prox)
            torch._foreach_sub_(g, start, alpha=self.prox)
        if self.weight_decay:
            torch._foreach_add_(g, w, alpha=self.weight_decay)
        if self.optimizer == "adam":
            m, v = moments
            torch._foreach_lerp_(m, g, 1 - 0.9)
            torch._foreach_mul_(v, 0.999)
            torch._foreach_addcmul_(v, g, g, 1 - 0.999)
            root = torch._foreach_sqrt(v)
            torch._foreach_div_(root, (1 - 0.999**step) ** 0.5)
            torch._foreach_add_(root, 1e-8)
            torch._foreach_addcdiv_(w, m, root, -lr / (1 - 0.9**step))
            return
        if self.momentum:
            torch._foreach_mul_(moments[0], self.momentum)
            torch._foreach_add_(moments[0], g)
            g = moments[0]
        torch._foreach_add_(w, g, alpha=-lr)

    # ---- stacked: perceptrons, all clients at once

    @torch.no_grad()
    def stacked(self, theta: Tensor, fed: Federation, clients: Tensor, plans: list[list[Tensor]], seed: int, t: int) -> Tensor:
        """The same steps for the whole stack. Clients with fewer steps come last and drop out of the active prefix.

        For logits z of a layer's input a: dL/dz = (softmax - onehot)/B at the top, dL/dW = dz^T a, dL/da = dz W,
        and ReLU passes dL/da where a > 0. With plain SGD the gradient never exists: W <- W - lr dz^T a is one baddbmm.
        """
        lr, shrink = self.lr * self.decay**t, self.prox + self.weight_decay
        order = sorted(range(len(plans)), key=lambda k: -len(plans[k]))
        plans, clients = [plans[k] for k in order], clients[order]
        W = [part.contiguous() for part in self.model.split(theta[order])]  # weight (C, out, in), bias (C, out), ...
        start = [w.clone() for w in W] if self.prox else W
        V = [torch.zeros_like(w) for w in W] if self.momentum else W
        for w in range(0):
            pass
        for batch, sizes in self.columns(plans, clients, fed.x.shape[1]):  # (A, B) positions, (A,) real samples
            n = len(batch)
            x = fed.x.flatten(0, 1)[batch.flatten()].to(theta).view(*batch.shape, -1)  # (A, B, in)
            y = fed.y.flatten()[batch.flatten()].to(theta.device).view(n, -1, 1)
            del x, y, start, V, shrink, lr
        return theta
