"""Sums of products C += A B that leave out the zeros of A: images' background, units that a ReLU has shut.

Lines of A that are alike go together, a few at a time: what is left out is where all of them are zero. That is kept in
bits, 64 to a word. The more lines, the less often a line of B is read; the fewer, the more of them is zero. Measured,
two are best, and one of the many short lines of A^T, whose zeros have nothing in common; but where most numbers are not
zero, as many as the registers hold.
"""

import numpy as np

from fedclust.fast.compiled import compiled
from fedclust.fast.products import (
    ROWS,
    VECTOR,
    VECTORS,
    add_piece,
    add_product,
    in_panels,
    look_at_piece,
    look_at_product,
    not_zero,
)

FEW, BESIDE = 2, 4  # lines at a time, panels of B beside each other
WORDS = 2  # of bits at a time: as much of B as stays in the first cache while all lines pass


@compiled
def groups(width, order):
    """Room for lines of this width in this order: their bits, the order, the bits of each group, (lines, how many at
    a time)."""
    alive = np.zeros((len(order), parts(width, 64)), np.uint64)
    return alive, order, np.zeros_like(alive), np.zeros(2, np.int64)


@compiled
def multiply(c, a, width, b, lines):
    """c += a b for the first numbers of each line of a (n, whole vectors), in panels."""
    if len(b) < BESIDE:
        add_product(c, np.arange(len(a)), a[:, :width], b, np.arange(width))
    else:
        bits(a, width, lines[0])
        unite(len(a), FEW, lines)
        by_groups(c, a, b, lines, np.zeros((0, c.shape[2]), c.dtype))


@compiled
def multiply_turned(c, a, width, d, lines, columns, few, seen):
    """c += a^T d, or, if there is room in `seen`, what a^T d is to c, as in `look_at_product`."""
    b, to, of = in_panels(d, c.shape[2]), np.arange(width), np.arange(len(a))
    if len(c) >= BESIDE:
        bits(a, width, lines[0])
        turn_bits(lines[0], len(a), width, columns[0])
        unite(width, few, columns)
        by_groups(c, a.T, b[: len(c)], columns, seen)
    elif len(seen):
        look_at_product(c, to, a[:, :width].T, b, of, seen)
    else:
        add_product(c, to, a[:, :width].T, b, of)


@compiled
def by_groups(c, a, b, lines, seen):
    """c += a b, or, if there is room in `seen`, what a b is to c."""
    _, order, together, (n, at_once) = lines
    lanes, many, words = b.shape[2], parts(n, at_once), together.shape[1]
    beside, some = BESIDE if at_once <= FEW else VECTORS, words if len(seen) else WORDS
    for p in range(0, len(b), beside):
        into, wide = c[p : p + beside, :, :lanes], min(beside, len(b) - p)
        for w in range(0, words, some):
            left, right = a[:, 64 * w :], b[p : p + beside, 64 * w :, :lanes]
            for g in range(many):
                low, of = n * g // many, together[g, w : w + some]
                rows = n * (g + 1) // many - low
                if len(seen):
                    look_at_piece(into, order, left, right, of, 0, low, rows, wide, seen)  # type: ignore[call-arg]
                else:
                    add_piece(into, order, left, right, of, 0, low, rows, wide)  # type: ignore[call-arg]


@compiled
def bits(a, width, found):
    """Which of the first numbers of each line of a (n, whole vectors) are not zero, into found (n, words)."""
    lanes = VECTOR // a.itemsize
    for b in range(len(a)):
        for w in range(found.shape[1]):
            word, here = np.uint64(0), min(64, width - 64 * w)
            for j in range(0, here, lanes):
                word |= not_zero(a, b, 64 * w + j) << np.uint64(j)  # type: ignore[call-arg]
            found[b, w] = word & (~np.uint64(0) >> np.uint64(64 - here))


@compiled
def turn_bits(alive, n, width, found):
    """The same of the columns, into found (width, words), square by square: halves change places, then halves of
    these."""
    square = np.empty(64, np.uint64)
    for w in range(found.shape[1]):
        for v in range(alive.shape[1]):
            square[:] = 0
            for b in range(64 * w, min(64 * w + 64, n)):
                square[b - 64 * w] = alive[b, v]
            half, low = 32, np.uint64(0xFFFFFFFF)
            while half:
                by = np.uint64(half)
                for first in range(0, 64, 2 * half):
                    for b in range(first, first + half):
                        apart = ((square[b] >> by) ^ square[b + half]) & low
                        square[b] ^= apart << by
                        square[b + half] ^= apart
                half //= 2
                low ^= low << np.uint64(half)
            for j in range(64 * v, min(64 * v + 64, width)):
                found[j, w] = square[j - 64 * v]


@compiled
def side_by_side(alive, order):
    """A chain from each line to the one most like it that is left."""
    for i in range(len(alive)):
        order[i] = i
    for i in range(1, len(alive)):
        last, least, best = alive[order[i - 1]], 1 << 62, i
        for j in range(i, len(alive)):
            other, apart = alive[order[j]], 0
            for w in range(len(last)):
                apart += ones(last[w] ^ other[w])
            if apart < least:
                least, best = apart, j
        order[i], order[best] = order[best], order[i]


@compiled
def unite(n, few, lines):
    """The bits of the first n lines in groups: of a `few`, or of more if two thirds are not zero."""
    alive, order, together, sizes = lines
    found, words = 0, alive.shape[1]
    for i in range(n):
        for w in range(words):
            found += ones(alive[i, w])
    sizes[0], sizes[1] = n, ROWS if 3 * found > 2 * 64 * words * n else few
    many = parts(n, sizes[1])
    for g in range(many):
        into = together[g]
        into[:] = 0
        for i in order[n * g // many : n * (g + 1) // many]:
            for w in range(words):
                into[w] |= alive[i, w]


@compiled
def ones(word):
    """How many bits are 1: of each pair, of each four, of each eight, of all."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def parts(n, size):
    return (n + size - 1) // size
