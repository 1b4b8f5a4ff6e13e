"""Differential privacy: DP-SGD, and clipped and noised updates. The accountants are Opacus'.

The noise comes from the named streams, so a run can be repeated; it protects only while the seed is
secret. Gradients per sample come from layers' inputs a and the deltas dz = dL/dz of their outputs:
a linear layer's gradient is dz^T a. Deltas of a weighted sum of losses are the samples' own,
weighted, so one pass backward serves all samples.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, unfold
from torch.nn.grad import conv2d_weight

from fedclust.accounting import Mechanism, epsilon_of, noise_for, spent  # noqa: F401
from fedclust.algorithms.base import Trainer
from fedclust.checks import Count, NotNegative, Positive, check_fields, number, require
from fedclust.federation import Federation
from fedclust.models import Model
from fedclust.rng import stream
from fedclust.training import LocalSGD

__all__ = ["DPSGD", "UpdateNoise"]

Delta = Annotated[float, "[1e-30, 1)"]
Tap = tuple[nn.Module, Tensor, Tensor]  # a layer, its input, the delta of its output


@dataclass(frozen=True)
class DPSGD(LocalSGD):
    """DP-SGD (Abadi et al. 2016): clip per-sample gradients, sum, add noise, divide by batch size.

    Each of an epoch's n/B steps draws every sample with probability B/n, as the accountant assumes,
    and divides by B, the expected size. Give `epsilon`, the whole budget for `participations`
    calls, and each client gets the noise that its number of samples needs; or give the
    `noise_multiplier` itself. epsilon = inf clips without noise.
    """

    _: KW_ONLY
    epsilon: float | None = None
    noise_multiplier: NotNegative | None = None
    delta: Delta = 1e-5
    clip: Positive = 1.0
    participations: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            (self.epsilon is None) != (self.noise_multiplier is None),
            f"epsilon={self.epsilon}, noise_multiplier={self.noise_multiplier}: give one of the "
            "two, the budget (e.g. epsilon=10) or the noise",
        )
        check_budget(self.epsilon)
        require(not self.autocast, "autocast=True: DP-SGD clips in full precision, leave it off")

    def schedule(self, n: int) -> tuple[float, int]:
        """Sampling rate and number of steps in one call, for a client with n samples."""
        width = min(self.batch, n)
        return width / n, self.steps or self.epochs * math.ceil(n / width)

    def batches(self, fed: Federation, i: int, seed: int, t: int) -> Tensor:
        """Poisson samples, (S, B): -1 fills up, a batch may be empty."""
        real = fed.mask[i].cpu().nonzero()[:, 0]
        rate, steps = self.schedule(len(real))
        generator = stream(seed, "batches", t, int(fed.ids[i]))
        drawn = torch.rand(steps, len(real), generator=generator) < rate
        size = drawn.sum(1)
        order = drawn.byte().argsort(dim=1, descending=True, stable=True)
        first = order[:, : max(int(size.max()), 1)]  # (S, B)
        return real[first].masked_fill(torch.arange(first.shape[1]) >= size[:, None], -1)

    def multiplier(self, n: int) -> float:
        """Standard deviation of the noise in units of `clip`, for a client with n samples."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        rate, steps = self.schedule(n)
        return noise_for(self.epsilon, self.delta, rate, steps * self.participations)

    def noise(self, size: int) -> float:
        return self.multiplier(size) * self.clip / min(self.batch, size)

    def clipping(self, size: int) -> tuple[float, int]:
        """Gradients are divided by the expected batch size, whatever was drawn."""
        return self.clip, min(self.batch, size)

    def gradient(self, net: nn.Module, x: Tensor, y: Tensor, size: int) -> None:
        """Layer by layer: scaling a sample's deltas scales its gradient."""
        for w in net.parameters():
            w.grad = torch.zeros_like(w)
        if not len(y):  # an empty draw
            return
        layers = taps(net, x, y, torch.ones_like(y, dtype=x.dtype))[1]()
        clip, expected = self.clipping(size)
        norms = torch.stack([squared_norms(*layer) for layer in layers]).sum(0).sqrt()  # (B,)
        scales = (clip / norms).clamp_max(1) / expected
        for layer, a, dz in layers:
            scaled = dz * scales.view(-1, *[1] * (dz.ndim - 1))
            layer.weight.grad, bias = parameter_gradient(layer, a, scaled)
            if layer.bias is not None:
                layer.bias.grad = bias

    def mechanisms(self, n: int, calls: int) -> dict[str, Mechanism]:
        """What these calls are to a client with n samples."""
        rate, steps = self.schedule(n)
        return {"epsilon": (self.multiplier(n), rate, steps * calls)}

    def spent(self, calls: Tensor, fed: Federation) -> dict[str, Tensor]:
        """The epsilon that each client's calls cost it at `delta`, (N,)."""
        return spent([(self, calls)], fed)


@dataclass(frozen=True)
class UpdateNoise:
    """Clip a client's update to norm `clip` and add Gaussian noise (Wei et al. 2020, NbAFL).

    sigma = c * 2 clip / (m * epsilon) with c = sqrt(2 ln(1.25/delta)) and the client's number of
    samples m, `epsilon` for each round. The whole row is clipped and noised, batch norm statistics
    too: all of it is sent. epsilon = inf clips without noise.

    The analysis behind sigma holds for epsilon <= 1, and it takes the update for a mean over
    samples, of sensitivity 2 clip / m. But one sample can move a clipped update by 2 clip. The
    metric `epsilon` is an accountant's for this true sensitivity, `epsilon_if_mean_over_samples`
    that for the assumed one: 11.15 in one round where the formula says 10.
    """

    train: Trainer
    epsilon: float = math.inf
    delta: Delta = 1e-5
    clip: Positive = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_budget(self.epsilon)

    @property
    def model(self) -> Model:
        return self.train.model

    @property
    def multiplier(self) -> float:
        """The noise in units of the assumed sensitivity 2 clip / m."""
        return math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    def __call__(
        self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
    ) -> Tensor:
        update = self.train(theta, fed, clients, seed, t) - theta
        update *= (self.clip / update.norm(dim=1, keepdim=True)).clamp_max(1)
        if math.isfinite(self.epsilon):
            sigma = self.multiplier * 2 * self.clip / fed.mask[clients].sum(1)  # (n,)
            ids = fed.ids[clients].tolist()
            for row, scale, i in zip(update, sigma.tolist(), ids, strict=True):
                noise = torch.randn(len(row), generator=stream(seed, "noise", t, i))
                row += scale * noise.to(row)
        return theta + update

    def mechanisms(self, n: int, calls: int) -> dict[str, Mechanism]:
        return {
            "epsilon": (self.multiplier / n, 1.0, calls),
            "epsilon_if_mean_over_samples": (self.multiplier, 1.0, calls),
        }

    def spent(self, calls: Tensor, fed: Federation) -> dict[str, Tensor]:
        """The composed epsilons of each client's rounds at `delta`, (N,) each."""
        return spent([(self, calls)], fed)


def check_budget(epsilon: float | None) -> None:
    """One that an accountant can work with; inf clips without noise."""
    if epsilon is not None and epsilon != math.inf:
        number("[1e-6, 1e6]", epsilon=epsilon)


def taps(
    net: nn.Module, x: Tensor, y: Tensor, weight: Tensor
) -> tuple[Tensor, Callable[[], list[Tap]]]:
    """Every sample's loss (B,), and what runs backward: (layer, its input, d(weight . loss)/d(its
    output)) of all layers with parameters."""
    seen: list[Tap] = []

    def tap(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        output = output if output.requires_grad else output.requires_grad_()
        seen.append((layer, inputs[0].detach(), output))

    known = [layer for layer in net.modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    weights = {id(w) for layer in known for w in layer.parameters(recurse=False)}
    others = {
        type(layer).__name__
        for layer in net.modules()
        if any(id(w) not in weights for w in layer.parameters(recurse=False))
    }
    require(
        not others,
        f"{sorted(others)}: gradients per sample exist for Linear and Conv2d only: use a model "
        "without others (batch norm mixes samples)",
    )
    for layer in net.modules():
        if getattr(layer, "inplace", False):
            layer.inplace = False  # type: ignore[assignment]  # outputs are needed as they were
    hooks = [layer.register_forward_hook(tap) for layer in known]
    try:
        with torch.enable_grad():
            loss = cross_entropy(net.requires_grad_(False)(x), y, reduction="none")
    finally:
        for hook in hooks:
            hook.remove()
    times = f"{len(known)} layers were used {len(seen)} times in one pass"
    require(len(seen) == len(known), f"{times}: each must be used exactly once")

    def backward() -> list[Tap]:
        deltas = torch.autograd.grad(loss, [output for *_, output in seen], weight)
        return [(layer, a, dz) for (layer, a, _), dz in zip(seen, deltas, strict=True)]

    return loss.detach(), backward


def parameter_gradient(layer: nn.Module, a: Tensor, dz: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of a layer's weight and bias from its input and delta; empty for no bias."""
    bias = dz.movedim(1, -1).flatten(0, -2).sum(0)[: None if layer.bias is not None else 0]
    if isinstance(layer, nn.Conv2d):
        how = (layer.stride, layer.padding, layer.dilation, layer.groups)
        return conv2d_weight(a, layer.weight.shape, dz, *how), bias
    return dz.T @ a, bias


def squared_norms(layer: nn.Module, a: Tensor, dz: Tensor) -> Tensor:
    """|gradient|^2 of one layer for every sample, from its input and delta -> (B,)."""
    if isinstance(layer, nn.Conv2d):
        require(
            layer.groups == 1 and not isinstance(layer.padding, str),
            f"{layer}: DP-SGD needs convolutions with groups=1, numeric padding",
        )
        how: Any = layer.kernel_size, layer.dilation, layer.padding, layer.stride
        patches = unfold(a, *how)
        dz = dz.flatten(2)  # (B, out, places), with patches (B, in * k * k, places)
        square, bias = (dz @ patches.mT).square().sum((1, 2)), dz.sum(2)
    else:
        square, bias = dz.square().sum(1) * a.square().sum(1), dz
    return square + bias.square().sum(1) if layer.bias is not None else square
