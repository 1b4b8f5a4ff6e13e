"""Local training: many clients in one call, from rows of start models to rows of trained ones.

`LocalSGD` has two backends that give the same result. *loop* trains any module, client after client. *stacked* is for
plain perceptrons, whose small matrices leave a processor waiting: it trains all clients at once on (C, out, in)
stacks with the backward pass written by hand.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from fedclust.federation import Federation
from fedclust.models import Model, values
from fedclust.rng import stream


BETAS, EPS = (0.9, 0.999), 1e-8  # Adam's usual constants
CACHE = 10 * 2**20  # bytes of models to train together: more, and every step reads them from memory
WORTHWHILE = 10**7  # products per step from which `fast_matmul` repays its overhead per call


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
        train = self.loop if self.backend == "loop" or self.not_stackable() else self.stacked
        return train(theta.to(self.device), fed, clients, seed, t).to(theta.device)

    def batches(self, fed: Federation, i: int, seed: int, t: int) -> Tensor:
        """Sample positions of each step of client i, (S, B); -1 fills up short batches.

        Every epoch has a stream of its own, so its order does not depend on how many epochs there are.
        """
        real, plan, e = fed.mask[i].cpu().nonzero()[:, 0], [], 0
        if not len(real):
            raise ValueError(f"client {int(fed.ids[i])} has no training samples: leave it out or partition differently")
        width = min(self.batch, len(real))
        per_epoch = -(-len(real) // width)
        for e in range(self.epochs if self.steps is None else -(-self.steps // per_epoch)):
            order = torch.randperm(len(real), generator=stream(seed, "batches", t, int(fed.ids[i]), e))
            plan.append(pad(real[order], (0, -len(real) % width), value=-1).view(-1, width))
        return torch.cat(plan)[: self.steps]

    # ---- loop: any module, one client after the other

    def loop(self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int) -> Tensor:
        lr, out = self.lr * self.decay**t, torch.empty_like(theta)
        net = self.model.module(theta[0]).train()
        row, weights = values(net), list(net.parameters())
        for k, i in enumerate(clients.tolist()):
            start = self.model.split(theta[k])
            with torch.no_grad():
                torch._foreach_copy_(row, start)
            memory = [[torch.zeros_like(w) for w in weights] for _ in range(2 if self.optimizer == "adam" else self.momentum > 0)]
            x, y = fed.x[i].to(theta), fed.y[i].to(theta.device)
            crops = stream(seed, "augment", t, int(fed.ids[i]))
            for step, batch in enumerate(self.batches(fed, i, seed, t), 1):
                real = batch[batch >= 0].to(x.device)
                images = crop_flip(x[real], crops) if self.augment else x[real]
                with torch.autocast(theta.device.type, torch.bfloat16, enabled=self.autocast):
                    loss = cross_entropy(net(images), y[real])
                gradients = list(torch.autograd.grad(loss, weights))
                with torch.no_grad():
                    self.update(weights, gradients, memory, start, lr, step)
            torch.cat([value.detach().flatten() for value in row], out=out[k])
        return out

    def update(self, w: list[Tensor], g: list[Tensor], memory: list[list[Tensor]], start: list[Tensor], lr: float, step: int) -> None:
        """One step in place as torch.optim does it, over all tensors of a model at once."""
        if self.prox:
            torch._foreach_add_(g, w, alpha=self.prox)
            torch._foreach_sub_(g, start[: len(w)], alpha=self.prox)
        if self.weight_decay:
            torch._foreach_add_(g, w, alpha=self.weight_decay)
        if self.optimizer == "adam":
            m, v = memory
            torch._foreach_lerp_(m, g, 1 - BETAS[0])
            torch._foreach_mul_(v, BETAS[1])
            torch._foreach_addcmul_(v, g, g, 1 - BETAS[1])
            root = torch._foreach_sqrt(v)
            torch._foreach_div_(root, (1 - BETAS[1] ** step) ** 0.5)
            torch._foreach_add_(root, EPS)
            torch._foreach_addcdiv_(w, m, root, -lr / (1 - BETAS[0] ** step))
            return
        if self.momentum:
            torch._foreach_mul_(memory[0], self.momentum)
            torch._foreach_add_(memory[0], g)
            g = memory[0]
        torch._foreach_add_(w, g, alpha=-lr)

    # ---- stacked: perceptrons, all clients at once

    @torch.no_grad()
    def stacked(self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int) -> Tensor:
        """Stacks of clients that stay in the cache together, those with most steps first."""
        out, order = torch.empty_like(theta), fed.mask[clients].sum(1).cpu().argsort(descending=True, stable=True)
        fit = max(CACHE // (theta[0].numel() * theta.element_size()), 1) if theta.device.type == "cpu" else len(order)
        for part in order.split(fit):
            work = len(part) * self.batch * self.model.size
            with fast_matmul(work > WORTHWHILE and theta.device.type == "cpu" and theta.dtype == torch.float32):
                self.stack(theta, out, part, fed, clients[part], seed, t)
        return out

    def stack(
        self, theta: Tensor, out: Tensor, order: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
    ) -> None:
        """The rows `order` of theta, trained into those of out. Clients out of steps drop out of the active prefix.

        With logits z = a W^T + b of a layer's input a: dL/dz = (softmax(z) - onehot) / B at the top, dL/dW = dz^T a,
        dL/da = dz W, and a ReLU passes dL/da on where a > 0. The gradient is never stored: `descend` folds the product
        dz^T a straight into the weight (or its momentum), one pass over memory instead of three.
        """
        lr = self.lr * self.decay**t
        grids = [self.batches(fed, i, seed, t) for i in clients.tolist()]
        steps = [len(g) for g in grids]
        grid = torch.full((len(grids), steps[0], max(g.shape[1] for g in grids)), -1)  # (C, S, B)
        for c, g in enumerate(grids):
            grid[c, : len(g), : g.shape[1]] = g
        real = (grid >= 0).to(theta)[..., None]
        share = real / real.sum(2, keepdim=True).clamp_min(1)  # (C, S, B, 1): 1/B; 0 for padding
        where = (grid.clamp_min(0) + (clients * fed.x.shape[1])[:, None, None]).to(fed.x.device)  # among all samples
        x, y = fed.x.flatten(0, 1).flatten(1), fed.y.flatten()
        W = [part[order] for part in self.model.split(theta)]  # weight (C, out, in), bias (C, out), ...
        W[1::2] = [b[:, None] for b in W[1::2]]  # (C, 1, out)
        start = [w.clone() if self.prox else w for w in W]
        V = [torch.zeros_like(w) if self.momentum else w for w in W]
        ones, minus = share.new_ones(len(order), 1, share.shape[2]), share.new_tensor(-1.0)
        for s in range(steps[0]):
            n = sum(length > s for length in steps)  # active clients
            w, v, w0 = ([part[:n] for part in group] for group in (W, V, start))
            batch = where[:n, s].flatten()
            a = [x.index_select(0, batch).to(theta).view(n, -1, x.shape[1])]  # (n, B, in): the input of every layer
            for i in range(0, len(w), 2):
                a.append(torch.baddbmm(w[i + 1], a[-1], w[i].mT))  # (n, B, in) -> (n, B, out)
                if i + 2 < len(w):
                    a[-1].relu_()
            dz, target = a.pop().softmax(2), y[batch].to(theta.device).view(n, -1, 1)
            dz.scatter_add_(2, target, minus.expand_as(target)).mul_(share[:n, s])
            for i in range(len(w) - 2, -1, -2):
                below = a.pop()
                back = dz.bmm(w[i]).mul_(below > 0) if i else dz  # before W moves
                self.descend(w[i], v[i], w0[i], dz.mT, below, lr)  # (n, out, B) (n, B, in)
                self.descend(w[i + 1], v[i + 1], w0[i + 1], ones[:n], dz, lr)  # the bias: its input is 1
                dz = back
        for part, w in zip(self.model.split(out), W, strict=True):
            part[order] = w.view(len(order), *part.shape[1:])

    def descend(self, w: Tensor, v: Tensor, start: Tensor, left: Tensor, right: Tensor, lr: float) -> None:
        """w <- w - lr v, v <- momentum v + left right + weight_decay w + prox (w - start), in place."""
        shrink = self.weight_decay + self.prox
        if self.momentum:
            v.baddbmm_(left, right, beta=self.momentum)
            if shrink:
                v.add_(w, alpha=shrink).sub_(start, alpha=self.prox)
            w.sub_(v, alpha=lr)
        else:
            w.baddbmm_(left, right, beta=1 - lr * shrink, alpha=-lr)
            if self.prox:
                w.add_(start, alpha=lr * self.prox)


def crop_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Random crops after padding by 4, each flipped left to right with probability 1/2, (B, c, h, w)."""
    n, _, height, width = x.shape
    top, left = torch.randint(0, 9, (2, n, 1), generator=generator)
    flip = torch.rand(n, 1, generator=generator) < 0.5
    rows = top + torch.arange(height)  # (B, h)
    columns = left + torch.where(flip, torch.arange(width - 1, -1, -1), torch.arange(width))  # (B, w)
    padded = pad(x, (4, 4, 4, 4)).movedim(1, -1)  # (B, h + 8, w + 8, c)
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None]].movedim(-1, 1)


@contextmanager
def fast_matmul(wanted: bool) -> Iterator[None]:
    """Single-precision products by another kernel of oneDNN, twice as fast on processors that MKL does not favour.

    The "bf16" setting allows rounding to bfloat16, but processors without matrix units compute in full precision all the
    same. That is checked once: where it does not hold, nothing is changed.
    """
    setting = torch.backends.mkldnn.matmul
    if not (wanted and is_single_precision()):
        yield
        return
    before = setting.fp32_precision
    setting.fp32_precision = "bf16"
    try:
        yield
    finally:
        setting.fp32_precision = before


@cache
def is_single_precision() -> bool:
    """Whether products under the setting have a relative error below 1e-5, for the three layouts of a training step."""
    setting = torch.backends.mkldnn.matmul
    before, worst, generator = setting.fp32_precision, 0.0, stream(0, "self-check")
    setting.fp32_precision = "bf16"
    try:
        for b, n_in, n_out in ((10, 784, 200), (64, 512, 128), (33, 65, 10)):
            a, dz, W = (torch.randn(4, *s, generator=generator) for s in ((b, n_in), (b, n_out), (n_out, n_in)))
            for left, right in ((a, W.mT), (dz, W), (dz.mT, a)):
                for fast, exact in ((left @ right, left.double() @ right.double()), (left[0] @ right[0], left[0].double() @ right[0].double())):
                    worst = max(worst, float((fast - exact).norm() / exact.norm()))
    finally:
        setting.fp32_precision = before
    return worst < 1e-5
