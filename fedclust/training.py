"""Local training: many clients in one call, from rows of received models to rows of trained ones.

`LocalSGD` has two backends that give the same result. *loop* trains any module, client after client. *stacked* is for
plain perceptrons, whose small matrices leave a processor waiting: it trains many clients at once on (C, out, in)
stacks with the backward pass written by hand.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from fedclust.federation import Federation
from fedclust.matmul import fast_matmul
from fedclust.models import Model, values
from fedclust.rng import stream

threshold_backward = torch.ops.aten.threshold_backward  # what ReLU passes back, in one pass over memory
CACHE = 10 * 2**20  # bytes of models and momenta to train together: with more, every step reads them from memory


@dataclass(frozen=True)
class LocalSGD:
    """Mini-batch SGD (or Adam) on each client's own samples, `epochs` times over or for a fixed number of `steps`.

    The learning rate of round t is lr * decay**t. `prox` is the mu of a term mu/2 |w - received model|^2 in the loss.
    Momentum and Adam's moments start fresh in every call. `augment="crop_flip"`: random crop after padding by 4 zeros,
    random flip. `autocast`: bfloat16 arithmetic where PyTorch deems it safe.

    >>> import fedclust as fc
    >>> fed = fc.partition.iid(fc.datasets.load("glyphs", n=100, n_test=20), clients=4)
    >>> model = fc.models.mlp(fed.shape, fed.classes, hidden=(8,))
    >>> received = model.init(0).expand(2, -1)  # (n, P)
    >>> trained = LocalSGD(model, lr=0.1, batch=10)(received, fed, clients=torch.tensor([0, 3]), seed=0, t=0)
    >>> trained.shape == received.shape
    True
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
    autocast: bool = False

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr={self.lr}: must be positive, e.g. 0.1")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay={self.decay}: must be above 0 and at most 1; 1 keeps the learning rate")
        for name, least in {"epochs": 1, "batch": 1, "steps": 1, "momentum": 0, "weight_decay": 0, "prox": 0}.items():
            if (given := getattr(self, name)) is not None and given < least:
                raise ValueError(f"{name}={given}: must be at least {least}")
        choices = {"optimizer": ("sgd", "adam"), "augment": (None, "crop_flip"), "backend": ("auto", "stacked", "loop")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {allowed}")
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(f"momentum={self.momentum} with optimizer='adam': Adam has its own moments, leave it at 0")
        if self.backend == "stacked" and (obstacle := self.not_stackable()):
            raise ValueError(f"backend='stacked' cannot train {obstacle}: use backend='auto' or 'loop'")

    def not_stackable(self) -> str | None:
        """What keeps the stacked backend from doing this work."""
        if not self.model.dense:
            return f"{self.model.name!r}, which is not a plain perceptron (models.mlp)"
        asked = {"Adam": self.optimizer == "adam", "augment": self.augment, "autocast": self.autocast}
        return next((f"with {name}" for name, wanted in asked.items() if wanted), None)

    def __call__(self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int) -> Tensor:
        """Received models (n, P) of the clients at these positions (n,) -> trained models (n, P)."""
        if theta.shape != (len(clients), self.model.size):
            raise ValueError(
                f"theta is {tuple(theta.shape)}: {len(clients)} clients of {self.model.name!r} need "
                f"{(len(clients), self.model.size)}, one row per client"
            )
        if empty := fed.ids[clients][~fed.mask[clients].any(1)].tolist():
            raise ValueError(f"clients {empty} have no training samples: leave them out or partition differently")
        if not len(clients):
            return theta.clone()
        start = theta.to(self.device)
        out = torch.empty_like(start)
        if self.backend == "loop" or self.not_stackable():
            with fast_matmul(start, self.batch * self.model.size):
                self.loop(start, out, fed, clients, seed, t)
        else:
            self.stacked(start, out, fed, clients, seed, t)
        return out.to(theta.device)

    def batches(self, fed: Federation, i: int, seed: int, t: int) -> Tensor:
        """Sample positions of each step of client i, (S, B); -1 fills up short batches.

        Every epoch has a stream of its own, so its order does not depend on how many epochs there are.
        """
        real = fed.mask[i].cpu().nonzero()[:, 0]
        width, plan = min(self.batch, len(real)), []
        for e in range(self.epochs if self.steps is None else ceil(self.steps / ceil(len(real) / width))):
            order = torch.randperm(len(real), generator=stream(seed, "batches", t, int(fed.ids[i]), e))
            plan.append(pad(real[order], (0, -len(real) % width), value=-1).view(-1, width))
        return torch.cat(plan)[: self.steps]

    # What privacy.DPSGD does differently.

    def weights(self, dz: list[Tensor], a: list[Tensor], real: Tensor, sizes: Tensor) -> Tensor:
        """What each sample's gradient counts in a step, (n, B, 1), given every layer's deltas and inputs: the mean."""
        return real / real.sum(1, keepdim=True)

    def gradient(self, net: nn.Module, x: Tensor, y: Tensor, size: int) -> None:
        """The same for a module: leave the gradient of a batch in its parameters. The client has `size` samples."""
        with torch.autocast(x.device.type, torch.bfloat16) if self.autocast else nullcontext():
            loss = cross_entropy(net(x), y)
        loss.backward()

    def noise(self, fed: Federation, i: int, seed: int, t: int) -> Callable[[Tensor], Tensor] | None:
        """A source of what is added to client i's gradients: fills a (P,) with the next one."""
        return None

    # ---- loop: any module, one client after the other

    def loop(self, theta: Tensor, out: Tensor, fed: Federation, clients: Tensor, seed: int, t: int) -> None:
        lr, scratch = self.lr * self.decay**t, torch.empty_like(theta[0]).cpu()
        net = self.model.module(theta[0]).train()
        for k, i in enumerate(clients.tolist()):
            start, row, weights = self.model.split(theta[k]), values(net), list(net.parameters())
            with torch.no_grad():
                torch._foreach_copy_(row, start)
            step, draw, size = self.optim(weights, lr), self.noise(fed, i, seed, t), int(fed.mask[i].sum())
            x, y = fed.x[i].to(theta), fed.y[i].to(theta.device)
            crops = stream(seed, "augment", t, int(fed.ids[i]))
            for batch in self.batches(fed, i, seed, t):
                chosen = batch[batch >= 0].to(theta.device)
                images = x.index_select(0, chosen)
                self.gradient(net, crop_flip(images, crops) if self.augment else images, y[chosen], size)
                if self.prox:
                    add(weights, [(w.detach() - w0) * self.prox for w, w0 in zip(weights, start, strict=False)])
                if draw:
                    add(weights, self.model.split(draw(scratch).to(theta.device)))
                step.step()
                step.zero_grad()
            with torch.no_grad():
                torch._foreach_copy_(self.model.split(out[k]), row)

    def optim(self, weights: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam(weights, lr, weight_decay=self.weight_decay, fused=True)
        fused = self.momentum > 0  # one pass over memory instead of three; without momentum there is only one
        return torch.optim.SGD(weights, lr, self.momentum, weight_decay=self.weight_decay, fused=fused)

    # ---- stacked: perceptrons, many clients at once

    @torch.no_grad()
    def stacked(self, theta: Tensor, out: Tensor, fed: Federation, clients: Tensor, seed: int, t: int) -> None:
        """Stacks of clients that stay in the cache together, those with most steps first."""
        order = fed.mask[clients].sum(1).cpu().argsort(descending=True, stable=True)
        copies = 1 + (self.momentum > 0) + (self.prox > 0)
        fit = CACHE // (copies * self.model.size * theta.element_size()) if theta.device.type == "cpu" else len(order)
        for part in order.split(max(fit, 1)):
            with fast_matmul(theta, len(part) * self.batch * self.model.size):
                self.stack(theta, out, part, fed, clients[part], seed, t)

    def stack(
        self, theta: Tensor, out: Tensor, order: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
    ) -> None:
        """Train the rows `order` of theta into those of out. Clients out of steps drop out of the active prefix.

        With logits z = a W^T + b of a layer's input a: dL/dz = softmax(z) - onehot at the top, dL/dW = dz^T a,
        dL/da = dz W, and a ReLU passes dL/da on where a > 0. The gradient is never stored: `descend` folds the product
        dz^T a straight into the weight (or its momentum), one pass over memory instead of three.
        """
        lr, device, rows = self.lr * self.decay**t, fed.x.device, self.model.split
        plans = [self.batches(fed, i, seed, t) for i in clients.tolist()]
        draws = [self.noise(fed, i, seed, t) for i in clients.tolist()]
        steps, scratch = [len(plan) for plan in plans], torch.empty_like(theta[: len(plans)]).cpu()
        grid = torch.full((len(plans), steps[0], max(plan.shape[1] for plan in plans)), -1)  # (C, S, B)
        for c, plan in enumerate(plans):
            grid[c, : len(plan), : plan.shape[1]] = plan
        real = (grid >= 0).to(theta)[..., None]
        where = (grid.clamp_min(0) + (clients.cpu() * fed.x.shape[1])[:, None, None]).to(device)  # among all samples
        x, y, sizes = fed.x.flatten(0, 1).flatten(1), fed.y.flatten(), fed.mask[clients].sum(1).to(theta)[:, None, None]
        W = [
            part[order] if part.ndim == 3 else part[order][:, None] for part in rows(theta)
        ]  # (C, out, in), (C, 1, out), ...
        start = [w.clone() if self.prox else w for w in W]
        V = [torch.zeros_like(w) if self.momentum else w for w in W]
        one, minus = theta.new_ones(len(order), 1, grid.shape[2]), theta.new_tensor(-1.0)
        for s in range(steps[0]):
            n = sum(length > s for length in steps)  # active clients
            w, v, w0 = ([part[:n] for part in group] for group in (W, V, start))
            chosen = where[:n, s].flatten()
            a = [x.index_select(0, chosen).to(theta).view(n, -1, x.shape[1])]  # (n, B, in): the input of every layer
            for i in range(0, len(w), 2):
                a.append(torch.baddbmm(w[i + 1], a[-1], w[i].mT))  # (n, B, in) -> (n, B, out)
                if i + 2 < len(w):
                    a[-1].relu_()
            target = y[chosen].to(theta.device).view(n, -1, 1)
            dz = [
                a.pop().softmax(2).scatter_add_(2, target, minus.expand(target.shape))
            ]  # (n, B, out): dL/dz of every layer
            for i in range(len(w) - 2, 0, -2):
                dz.insert(0, threshold_backward(dz[0].bmm(w[i]), a[i // 2], 0))
            share = self.weights(dz, a, real[:n, s], sizes[:n])
            drawn = [draw(row) for draw, row in zip(draws[:n], scratch, strict=False) if draw]
            e = rows(scratch[:n].to(theta.device)) if drawn else [None] * len(w)
            for i in range(0, len(w), 2):
                d = dz[i // 2].mul_(share)
                self.descend(w[i], v[i], w0[i], d.mT, a[i // 2], e[i], lr)  # (n, out, B) (n, B, in)
                self.descend(w[i + 1], v[i + 1], w0[i + 1], one[:n], d, e[i + 1], lr)  # the bias: its input is 1
        for part, trained in zip(rows(out), W, strict=True):
            part[order] = trained.view(len(order), *part.shape[1:])

    def descend(
        self, w: Tensor, v: Tensor, start: Tensor, left: Tensor, right: Tensor, noise: Tensor | None, lr: float
    ) -> None:
        """w <- w - lr v, v <- momentum v + left right + noise + weight_decay w + prox (w - start), in place."""
        shrink = self.weight_decay + self.prox
        if self.momentum:
            v.baddbmm_(left, right, beta=self.momentum)
            if noise is not None:
                v.add_(noise.view_as(v))
            if shrink:
                v.add_(w, alpha=shrink).sub_(start, alpha=self.prox)
            w.sub_(v, alpha=lr)
        else:
            w.baddbmm_(left, right, beta=1 - lr * shrink, alpha=-lr)
            if self.prox:
                w.add_(start, alpha=lr * self.prox)
            if noise is not None:
                w.add_(noise.view_as(w), alpha=-lr)


def add(weights: list[nn.Parameter], extra: list[Tensor]) -> None:
    """Add to the gradients of the weights that have one."""
    for w, e in zip(weights, extra, strict=False):
        if w.grad is not None:
            w.grad.add_(e)


def crop_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Random crops after padding by 4, each flipped left to right with probability 1/2, (B, c, h, w)."""
    n, _, height, width = x.shape
    top, left = torch.randint(0, 9, (2, n, 1), generator=generator)
    flip = torch.rand(n, 1, generator=generator) < 0.5
    rows = top + torch.arange(height)  # (B, h)
    columns = left + torch.where(flip, torch.arange(width - 1, -1, -1), torch.arange(width))  # (B, w)
    padded = pad(x, (4, 4, 4, 4)).movedim(1, -1)  # (B, h + 8, w + 8, c)
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None]].movedim(-1, 1)
