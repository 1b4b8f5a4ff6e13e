"""From bytes to the numbers a network sees."""

import numpy as np
import torch
from torch import Tensor

from fedclust.fast.compiled import compiled


def normalised(images: Tensor, at: Tensor, mean: tuple[float, ...], std: tuple[float, ...], out: Tensor) -> None:
    """(x / 255 - mean) / std of the images (n, c, h, w) at some places (m,), into `out` (m, c, h, w).

    There are 256 bytes: each is worked out once per colour and looked up.

    >>> out = torch.empty(1, 1, 1, 2)
    >>> normalised(torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2), torch.tensor([0]), (0.5,), (0.25,), out)
    >>> out.flatten().tolist()
    [-2.0, 2.0]
    """
    center, width = (torch.tensor(v).view(-1, 1) for v in (mean, std))
    numbers = ((torch.arange(256.0) / 255 - center) / width).expand(images.shape[1], -1)  # (c, 256)
    look_up(images.flatten(2).numpy(), at.numpy(), numbers.contiguous().numpy(), out.flatten(2).numpy())


@compiled
def look_up(images, at, numbers, out):
    """out[i, c, p] = numbers[c, images[at[i], c, p]]"""
    for i in range(len(at)):
        for c in range(images.shape[1]):
            for p in range(images.shape[2]):
                out[i, c, p] = numbers[c, images[at[i], c, p]]


def shrunk(images: Tensor, by: int) -> Tensor:
    """Each pixel the mean of `by` times `by`: (n, c, h, w) -> (n, c, h / by, w / by).

    >>> shrunk(torch.tensor([[0, 1, 8, 8], [2, 4, 8, 9]], dtype=torch.uint8).view(1, 1, 2, 4), 2).flatten().tolist()
    [2, 8]
    """
    n, c, high, wide = images.shape
    out = torch.empty(n, c, high // by, wide // by, dtype=torch.uint8)
    shrink(images.contiguous().numpy(), by, out.numpy())
    return out


@compiled
def shrink(images, by, out):
    for i in range(len(out)):
        for c in range(out.shape[1]):
            for h in range(out.shape[2]):
                for w in range(out.shape[3]):
                    total = 0
                    for row in range(h * by, h * by + by):
                        for column in range(w * by, w * by + by):
                            total += images[i, c, row, column]
                    out[i, c, h, w] = np.rint(total / by**2)
