"""Local training: many clients in one call, from rows of received models to rows of trained ones.

`LocalSGD.loop` trains any module, one client after the other. Where `fast` has a quicker way for
exactly what was asked, that is taken, with the same result but for rounding.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from fedclust import fast
from fedclust.checks import Count, NotNegative, Positive, Share, check_fields, require
from fedclust.federation import Federation
from fedclust.models import Model, values
from fedclust.rng import key, stream


@dataclass(frozen=True)
class LocalSGD:
    """Mini-batch SGD (or Adam) on each client's own samples, `epochs` times over or for `steps`.

    Momentum and Adam's moments start fresh in every call.

    >>> import fedclust as fc
    >>> fed = fc.partition.iid(fc.datasets.load("glyphs", n=100, n_test=20), clients=4)
    >>> model = fc.models.mlp(fed.shape, fed.classes, hidden=(8,))
    >>> received = model.init(0).expand(2, -1)  # (n, P)
    >>> train = LocalSGD(model, lr=0.1, batch=10)
    >>> trained = train(received, fed, clients=torch.tensor([0, 3]), seed=0, t=0)
    >>> trained.shape == received.shape
    True
    """

    model: Model
    lr: Positive
    epochs: Count = 1
    batch: Count = 32
    steps: Count | None = None
    momentum: Annotated[float, "[0, 1)"] = 0.0
    weight_decay: NotNegative = 0.0
    prox: NotNegative = 0.0  # mu of a term mu/2 |w - received model|^2 in the loss
    decay: Share = 1.0  # the learning rate of round t is lr * decay**t
    optimizer: Literal["sgd", "adam"] = "sgd"
    augment: Literal["crop_flip"] | None = None  # crop after padding by 4 zeros, flip, at random
    backend: Literal["auto", "stacked", "loop"] = "auto"
    device: str = "cpu"
    autocast: bool = False  # bfloat16 arithmetic where PyTorch deems it safe

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            not (self.optimizer == "adam" and self.momentum),
            f"momentum={self.momentum} with optimizer='adam': must be 0, Adam has its own",
        )
        if self.backend == "stacked" and (obstacle := fast.cannot_train(self)):
            remedy = "use backend='auto' or 'loop'"
            raise ValueError(f"backend='stacked' cannot train {obstacle}: {remedy}")

    @fast.shared
    def __call__(
        self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
    ) -> Tensor:
        """Received models (n, P) of clients at these positions (n,) -> trained models (n, P)."""
        wanted, empty = (len(clients), self.model.size), ~fed.mask[clients].any(1)
        require(
            theta.shape == wanted,
            f"theta is {tuple(theta.shape)}: must be {wanted}, a {self.model.name!r} per client",
        )
        require(
            not empty.any(),
            f"clients {fed.ids[clients][empty].tolist()} have no training samples: leave them out "
            "or split differently",
        )
        if not len(clients):
            return theta.clone()
        start = theta.to(self.device)
        if fast.supports(self, start):
            trained = fast.train(self, start, fed, clients, seed, t)
        else:
            with fast.large_products(start, self.batch * self.model.size):
                trained = self.loop(start, fed, clients, seed, t)
        check_finite(trained, fed.ids[clients])
        return trained.to(theta.device)

    def batches(self, fed: Federation, i: int, seed: int, t: int) -> Tensor:
        """Sample positions of each step of client i, (S, B); -1 fills up short batches."""
        real, name = np.append(fed.mask[i].cpu().numpy().nonzero()[0], -1), int(fed.ids[i])
        size = len(real) - 1
        width = min(self.batch, size)
        steps = math.ceil(size / width)
        epochs = self.epochs if self.steps is None else math.ceil(self.steps / steps)
        plan = np.full((epochs, steps * width), -1)
        for e in range(epochs):  # each has its own stream, however many there are
            order = torch.randperm(size, generator=stream(seed, "batches", t, name, e))
            plan[e, :size] = order.numpy()
        return torch.from_numpy(real[plan.reshape(-1, width)[: self.steps]])  # real[-1] is -1

    # Private training differs in these three, see `privacy.DPSGD`.

    def clipping(self, size: int) -> tuple[float, int]:
        """Each sample's largest norm, and the divisor of the gradients' sum; 0: their number."""
        return math.inf, 0

    def gradient(self, net: nn.Module, x: Tensor, y: Tensor, size: int) -> None:
        """Leave a batch's gradient in the module's parameters; the client has `size` samples."""
        with torch.autocast(x.device.type, torch.bfloat16) if self.autocast else nullcontext():
            loss = cross_entropy(net(x), y)
        loss.backward()

    def noise(self, size: int) -> float:
        """Standard deviation of what is added to each gradient of a client with `size` samples."""
        return 0.0

    def loop(self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int) -> Tensor:
        """Any module, one client after the other."""
        out, net = torch.empty_like(theta), self.model.module(theta[0]).train()
        weights = list(net.parameters())
        for k, i in enumerate(clients.tolist()):
            start, name, size = self.model.split(theta[k]), int(fed.ids[i]), int(fed.mask[i].sum())
            with torch.no_grad():
                torch._foreach_copy_(values(net), start)
            step, scale = self.optim(weights, self.lr * self.decay**t), self.noise(size)
            x, y = fed.x[i].to(theta), fed.y[i].to(theta.device)
            crops, noise = stream(seed, "augment", t, name), key(seed, "noise", t, name)
            for s, batch in enumerate(self.batches(fed, i, seed, t)):
                chosen = batch[batch >= 0].to(theta.device)
                images = x.index_select(0, chosen)
                images = crop_flip(images, crops) if self.augment else images
                self.gradient(net, images, y[chosen], size)
                if self.prox:
                    moved = [w.detach() - w0 for w, w0 in zip(weights, start, strict=False)]
                    add(weights, [self.prox * way for way in moved])
                if scale:
                    e = fast.noise(self.model.size, noise, s * self.model.size).to(theta)
                    add(weights, self.model.split(e * scale))
                step.step()
                step.zero_grad()
            with torch.no_grad():
                torch._foreach_copy_(self.model.split(out[k]), values(net))
        return out

    def optim(self, weights: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam(weights, lr, weight_decay=self.weight_decay, fused=True)
        how: dict[str, Any] = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        return torch.optim.SGD(weights, lr, fused=self.momentum > 0, **how)  # else one pass anyway


def check_finite(rows: Tensor, ids: Tensor) -> None:
    """Names the clients whose row is not finite."""
    good = rows.sum(1).isfinite().to(ids.device)  # no finite sum has a term that is not
    if not good.all():
        raise FloatingPointError(
            f"the models of clients {ids[~good].tolist()} are not finite, their training diverged: "
            "lower the learning rate (lr) or look at these clients' data"
        )


def add(weights: list[nn.Parameter], extra: list[Tensor]) -> None:
    """Add to the gradients of the weights that have one."""
    for w, e in zip(weights, extra, strict=False):
        if w.grad is not None:
            w.grad.add_(e)


def crop_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Random crops after padding by 4, half of them flipped left to right, (B, c, h, w)."""
    n, _, height, width = x.shape
    top, left = torch.randint(0, 9, (2, n, 1), generator=generator)
    flip = torch.rand(n, 1, generator=generator) < 0.5
    rows = top + torch.arange(height)  # (B, h)
    across = torch.arange(width)
    columns = left + torch.where(flip, across.flip(0), across)  # (B, w)
    padded = pad(x, (4, 4, 4, 4)).movedim(1, -1)  # (B, h + 8, w + 8, c)
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None]].movedim(-1, 1)
