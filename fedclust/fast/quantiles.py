"""The noise of `normal` without a compiler: the same random bits, and PyTorch's own quantiles."""

import numpy as np
import torch
from torch import Tensor

HALF = np.uint64(32)


def normal(size: int, key: int, first: int = 0) -> Tensor:
    """The numbers of this key from place `first` on, (size,).

    >>> torch.equal(normal(10, key=2**62 + 12345, first=5)[:5], normal(10, key=2**62 + 12345)[5:])
    True
    """
    drawn = torch.from_numpy(
        bits(key | 1, first + np.arange(size, dtype=np.uint64)).astype(np.int64)
    )
    below = torch.special.ndtri(((drawn & 0x7FFFFFFF) + 0.5).double() / 2**32)  # of (0, 1/2)
    return torch.where(drawn >= 2**31, below, -below).float()


def bits(key: int, place: np.ndarray) -> np.ndarray:
    """32 random bits for each place (Widynski 2020, "Squares", four rounds); products overflow."""
    x = place * np.uint64(key)
    y, z = x, x + np.uint64(key)
    for add in (y, z, y):
        x = x * x + add
        x = (x >> HALF) | (x << HALF)
    return (x * x + z) >> HALF
