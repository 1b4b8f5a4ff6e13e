"""The first layer of a network for images: a 5x5 convolution, 2x2 maximum and ReLU in one pass over the cache.

A general library wants many channels to fill its vectors with; a picture has three, and so takes half of a small
network's time there. Here the vectors run along the picture instead. With pictures of width W as rows of numbers, the
place p of an output is p + i W + j for the kernel's entry (i, j), so that

    z[o, p] = b[o] + sum_{c,i,j} w[o, c, i, j] x[c, p + i W + j]        (forward)
    dw[o, c, i, j] = sum_p dz[o, p] x[c, p + i W + j]                   (backward)

are sums of shifted rows, whatever the width. (Places at the right edge mix two lines; they are computed and not used.)
Two output channels go together, so every number of x is loaded half as often. The pictures themselves get no gradient.
Signs and not-a-numbers come out as PyTorch's do: only the order of summation is left free to the compiler.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedclust.compiled import compiled

KERNEL = 5  # that of all five papers' networks for colour images; a constant, so that its loops unroll


class FirstLayer(torch.autograd.Function):
    """(B, c, h, w), (o, c, 5, 5), (o,) -> (B, o, (h - 4) / 2, (w - 4) / 2), channels last in memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        x, (*_, height, width) = x.contiguous(), x.shape
        sides = (height - KERNEL + 1) // 2, (width - KERNEL + 1) // 2
        out = x.new_empty(len(x), len(w), *sides)
        place = torch.empty(out.shape, dtype=torch.int8)  # of the maximum
        forward(*(a.detach().numpy() for a in (x, w.contiguous(), b, out, place)))
        ctx.save_for_backward(x, place)
        return out.contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor, Tensor]:
        x, place = ctx.saved_tensors
        dw = x.new_empty(len(x), g.shape[1], x.shape[1], KERNEL, KERNEL)  # (B, o, c, 5, 5)
        db = x.new_empty(len(x), g.shape[1])  # (B, o)
        backward(*(a.numpy() for a in (g.contiguous(), place, x, dw, db)))
        return None, dw.sum(0), db.sum(0)


@compiled
def forward(x, w, b, out, place):
    n, outs, height, _ = out.shape
    W = x.shape[3]
    z = np.empty((2, 2 * height * W), x.dtype)
    z0, z1 = z[0][: 1 - KERNEL], z[1][: 1 - KERNEL]
    for k in range(n):
        rows = x[k].reshape(x.shape[1], -1)
        for pair in range(0, outs, 2):
            o = min(pair, outs - 2)  # an odd number: the last but one is done twice
            z[0].fill(b[o])
            z[1].fill(b[o + 1])
            for c in range(x.shape[1]):
                add_shifted(z0, z1, rows[c], w[o, c], w[o + 1, c], W)
            for d in range(2):
                maximum(z[d].reshape(-1, W), out[k, o + d], place[k, o + d])


@compiled
def add_shifted(z0, z1, x, w0, w1, W):
    """z0[p] += sum_{i,j} w0[i, j] x[p + i W + j], z1 with w1. Each line is a slice: a place that might be
    negative would keep the compiler from using vectors."""
    x0, x1, x2, x3, x4 = x, x[W:], x[2 * W :], x[3 * W :], x[4 * W :]
    for p in range(len(z0)):
        s, t = z0[p], z1[p]
        for j in range(KERNEL):
            a, b, c, d, e = x0[p + j], x1[p + j], x2[p + j], x3[p + j], x4[p + j]
            s += w0[0, j] * a + w0[1, j] * b + w0[2, j] * c + w0[3, j] * d + w0[4, j] * e
            t += w1[0, j] * a + w1[1, j] * b + w1[2, j] * c + w1[3, j] * d + w1[4, j] * e
        z0[p], z1[p] = s, t


@compiled
def maximum(z, out, place):
    """Maxima of 2x2 numbers and their places: 0 1 above, 2 3 below, -1 where ReLU stops them."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            a, b, c, d = z[2 * i, 2 * j], z[2 * i, 2 * j + 1], z[2 * i + 1, 2 * j], z[2 * i + 1, 2 * j + 1]
            right = (b > a) | (b != b)  # not-a-number is larger than any
            most, which = (b if right else a), (1 if right else 0)
            right = (d > c) | (d != d)
            other, where = (d if right else c), (3 if right else 2)
            below = (other > most) | (other != other)
            most, which = (other if below else most), (where if below else which)
            out[i, j] = 0 if most <= 0 else most
            place[i, j] = -1 if most <= 0 else which


@compiled
def backward(g, place, x, dw, db):
    n, outs, height, _ = g.shape
    W = x.shape[3]
    dz = np.zeros((2, 2 * height * W), x.dtype)
    dz0, dz1 = dz[0][: 1 - KERNEL], dz[1][: 1 - KERNEL]
    for k in range(n):
        rows = x[k].reshape(x.shape[1], -1)
        for pair in range(0, outs, 2):
            o = min(pair, outs - 2)
            dz.fill(0)
            for d in range(2):
                db[k, o + d] = spread(g[k, o + d], place[k, o + d], dz[d].reshape(-1, W))
            for c in range(x.shape[1]):
                for i in range(KERNEL):
                    products(dz0, dz1, rows[c, i * W :], dw[k, o, c, i], dw[k, o + 1, c, i])


@compiled
def spread(g, place, dz):
    """Puts gradients back to where the maxima were. Returns their sum."""
    total = g.dtype.type(0)
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            at = place[i, j]
            passed = g[i, j] if at >= 0 else g.dtype.type(0)
            total += passed
            for v in range(4):
                dz[2 * i + v // 2, 2 * j + v % 2] = passed if at == v else 0
    return total


@compiled
def products(u, v, x, dw0, dw1):
    """dw0[j] = sum_p u[p] x[p + j], dw1 with v. Spelt out, so that all ten sums stay in registers."""
    a0 = a1 = a2 = a3 = a4 = b0 = b1 = b2 = b3 = b4 = x.dtype.type(0)
    for p in range(len(u)):
        x0, x1, x2, x3, x4 = x[p], x[p + 1], x[p + 2], x[p + 3], x[p + 4]
        a0, a1, a2, a3, a4 = a0 + u[p] * x0, a1 + u[p] * x1, a2 + u[p] * x2, a3 + u[p] * x3, a4 + u[p] * x4
        b0, b1, b2, b3, b4 = b0 + v[p] * x0, b1 + v[p] * x1, b2 + v[p] * x2, b3 + v[p] * x3, b4 + v[p] * x4
    dw0[0], dw0[1], dw0[2], dw0[3], dw0[4] = a0, a1, a2, a3, a4
    dw1[0], dw1[1], dw1[2], dw1[3], dw1[4] = b0, b1, b2, b3, b4
