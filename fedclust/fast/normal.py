"""Normal numbers by name: each is a function of a key and of its place, no matter who draws it and
when.

Key and place make 32 bits (Widynski 2020, "Squares: a fast counter-based RNG", four rounds). One is
the sign, the others a number y in (0, 1), and the normal number is -+ sqrt(2) erfinv(1 - y) (Giles
2012, "Approximating the erfinv function", single precision). Nothing here branches or has a state,
so the compiler makes vectors of it.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy import float32 as f
from numpy import int32, uint64
from torch import Tensor

from fedclust.fast.compiled import compiled

HALF, LN2, ROOT2 = uint64(32), f(math.log(2)), f(math.sqrt(2))
exactly: Any = compiled(fastmath=frozenset({"contract"}))  # the same digits in any surroundings


def normal(size: int, key: int, first: int = 0) -> Tensor:
    """The numbers of this key (63 random bits, as `rng.key` makes them) from place `first` on,
    (size,).

    >>> torch.equal(normal(10, key=2**62 + 12345, first=5)[:5], normal(10, key=2**62 + 12345)[5:])
    True
    """
    row = np.empty(size, np.float32)
    fill(row, uint64(key), first)
    return torch.from_numpy(row)


@exactly
def fill(row, key, first):
    """The same, into row. Two loops, since one over integers of 64 bits would halve the vectors of
    all the rest."""
    drawn, key = row.view(np.int32), uint64(key) | uint64(1)
    for i in range(len(row)):
        drawn[i] = int32(bits(key, uint64(first + i)))
    for i in range(len(row)):
        sign, y = drawn[i] >> int32(31), (f(drawn[i] & int32(0x7FFFFFFF)) + f(0.5)) * f(2.0**-31)
        w = -log(y * (f(2) - y))  # -ln(1 - x^2) of x = 1 - y, exact near 1
        p, q = centre(w - f(2.5)), tail(math.sqrt(w) - f(3))
        row[i] = (p if w < f(5) else q) * (f(1) - y) * (ROOT2 * f(int32(1) + int32(2) * sign))


@exactly
def bits(key, place):
    x = place * key
    y, z = x, x + key
    x = x * x + y
    x = (x >> HALF) | (x << HALF)
    x = x * x + z
    x = (x >> HALF) | (x << HALF)
    x = x * x + y
    x = (x >> HALF) | (x << HALF)
    return (x * x + z) >> HALF


@exactly
def log(x):
    """ln x = e ln 2 + ln m with m in (0.7, 1.42), for normal single-precision numbers (Cephes)."""
    i = f(x).view(np.int32) - int32(0x3F3504F3)  # of sqrt(1/2)
    e, m = (
        f(i >> int32(23)),
        int32((i & int32(0x007FFFFF)) + int32(0x3F3504F3)).view(np.float32) - f(1),
    )
    p = f(7.0376836292e-2) * m - f(1.1514610310e-1)
    p = p * m + f(1.1676998740e-1)
    p = p * m - f(1.2420140846e-1)
    p = p * m + f(1.4249322787e-1)
    p = p * m - f(1.6668057665e-1)
    p = p * m + f(2.0000714765e-1)
    p = p * m - f(2.4999993993e-1)
    p = p * m + f(3.3333331174e-1)
    return e * LN2 + (m + (p * m - f(0.5)) * (m * m))


@exactly
def centre(w):
    p = f(2.81022636e-08) * w + f(3.43273939e-07)
    p = p * w - f(3.5233877e-06)
    p = p * w - f(4.39150654e-06)
    p = p * w + f(0.00021858087)
    p = p * w - f(0.00125372503)
    p = p * w - f(0.00417768164)
    p = p * w + f(0.246640727)
    return p * w + f(1.50140941)


@exactly
def tail(w):
    p = f(-0.000200214257) * w + f(0.000100950558)
    p = p * w + f(0.00134934322)
    p = p * w - f(0.00367342844)
    p = p * w + f(0.00573950773)
    p = p * w - f(0.0076224613)
    p = p * w + f(0.00943887047)
    p = p * w + f(1.00167406)
    return p * w + f(2.83297682)
