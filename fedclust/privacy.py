"""Differential privacy: DP-SGD. The accountants are Opacus'.

The noise comes from the named streams, so a run can be repeated; it protects only while the seed is
secret.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedclust.accounting import Mechanism, epsilon_of, noise_for, spent  # noqa: F401
from fedclust.checks import Count, NotNegative, Positive, number, require
from fedclust.federation import Federation
from fedclust.paths import from_parts
from fedclust.rng import stream
from fedclust.training import LocalSGD

PAPERS = {"UpdateNoise": "dcfl"}  # as in `partition`
__all__ = ["DPSGD", *PAPERS]  # what a trial can name
__getattr__, __dir__ = from_parts(__name__, PAPERS)

Delta = Annotated[float, "[1e-30, 1)"]


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
        """The samples' own gradients, each clipped to the same norm, over the expected size."""
        mixing = {type(layer).__name__ for layer in net.modules() if [*layer.buffers(False)]}
        remedy = "no noise covers its running values: use a model without batch norm"
        require(not mixing, f"{', '.join(sorted(mixing))}: {remedy}")
        weights = [w for w in net.parameters() if w.requires_grad]
        clipped, (clip, expected) = [torch.zeros_like(w) for w in weights], self.clipping(size)
        for image, label in zip(x.split(1), y.split(1), strict=True):
            loss = cross_entropy(net(image), label)
            own = torch.autograd.grad(loss, weights, materialize_grads=True)  # 0 where unused
            norm = torch.stack([part.norm() for part in own]).norm()
            scale = (clip / norm).clamp_max(1) / expected
            torch._foreach_add_(clipped, [scale * part for part in own])
        for w, total in zip(weights, clipped, strict=True):
            w.grad = total

    def mechanisms(self, n: int, calls: int) -> dict[str, Mechanism]:
        """What these calls are to a client with n samples."""
        rate, steps = self.schedule(n)
        return {"epsilon": (self.multiplier(n), rate, steps * calls)}

    def spent(self, calls: Tensor, fed: Federation) -> dict[str, Tensor]:
        """The epsilon that each client's calls cost it at `delta`, (N,)."""
        return spent([(self, calls)], fed)


def check_budget(epsilon: float | None) -> None:
    """One that an accountant can work with; inf clips without noise."""
    if epsilon is not None and epsilon != math.inf:
        number("[1e-6, 1e6]", epsilon=epsilon)
