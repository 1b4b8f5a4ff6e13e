"""Matrix products at the processor's full speed, where that costs no precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedclust.rng import stream

SETTING: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
WORTHWHILE = 10**7  # products in a step from which the other kernel repays its overhead per call


@contextmanager
def fast_matmul(like: Tensor, products: int) -> Iterator[None]:
    """Inside, large single-precision products on a CPU go to another kernel of oneDNN.

    On processors that the default library does not favour it is twice as fast. Its setting "bf16"
    permits rounding to bfloat16, but processors without matrix units compute in single precision
    all the same. That is checked once: where it does not hold, nothing changes.
    """
    fits = products > WORTHWHILE and like.device.type == "cpu" and like.dtype == torch.float32
    with setting("bf16" if fits and is_single_precision() else SETTING.fp32_precision):
        yield


@contextmanager
def setting(precision: str) -> Iterator[None]:
    before = SETTING.fp32_precision
    SETTING.fp32_precision = precision
    try:
        yield
    finally:
        SETTING.fp32_precision = before


@cache
def is_single_precision() -> bool:
    """Whether relative errors stay below 1e-5 under the setting, for the layouts and some sizes of
    a training step."""
    if not torch.backends.mkldnn.is_available():
        return False
    generator, worst = stream(0, "self-check"), 0.0
    with setting("bf16"):
        for b, n_in, n_out in ((10, 784, 200), (64, 512, 128), (33, 65, 10)):
            a, dz, w = (
                torch.randn(4, *s, generator=generator)
                for s in ((b, n_in), (b, n_out), (n_out, n_in))
            )
            for left, right in (
                (a, w.mT),
                (dz, w),
                (dz.mT, a),
                (a[0], w[0].T),
                (dz[0], w[0]),
                (dz[0].T, a[0]),
            ):
                exact = left.double() @ right.double()
                worst = max(worst, float((left @ right - exact).norm() / exact.norm()))
    return worst < 1e-5
