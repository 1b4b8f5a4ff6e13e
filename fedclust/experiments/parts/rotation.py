"""Images turned by an angle of each client, for DCFL's clients and IFCA's."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

__all__ = ["black_pixels", "turn"]


def turn(x: Tensor, angle: Tensor, black: Tensor) -> Tensor:
    """Client i's images turned counter-clockwise by ``angle[i]`` degrees, with black corners.

    Pixels are interpolated bilinearly. `black` (N, c) is what normalisation makes of a pixel of 0.
    """
    n, m, c, h, w = x.shape
    cos, sin, none = angle.deg2rad().cos(), angle.deg2rad().sin(), torch.zeros_like(angle)
    back = torch.stack([cos, -sin * h / w, none, sin * w / h, cos, none], 1).view(n, 2, 3)
    grid = affine_grid(back.to(x.dtype), [n, 1, h, w], align_corners=False)  # one per client
    black = black.view(n, 1, -1, 1, 1)
    turned = grid_sample((x - black).view(n, m * c, h, w), grid, align_corners=False)
    return turned.view_as(x) + black


def black_pixels(mean: Sequence[float], std: Sequence[float], clients: int) -> Tensor:
    """What normalisation makes of a pixel of 0, (clients, c)."""
    return -torch.tensor(mean).div(torch.tensor(std)).expand(clients, -1)
