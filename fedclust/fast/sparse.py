"""Sums of products C += A B that leave out the zeros of A: images' background, units that a ReLU
has shut.

Lines of A that are alike go together, a few at a time: what is left out is where all of them are
zero. That is kept in bits, 64 to a word. The more lines, the less often a line of B is read; the
fewer, the more of them is zero. Measured, two are best, and one of the many short lines of A^T,
whose zeros have nothing in common. Where most numbers are not zero, nothing is left out, and the
sums are those of `products`.
"""

import numpy as np

from fedclust.fast.compiled import compiled
from fedclust.fast.products import (
    BESIDE,
    VECTOR,
    add_piece,
    add_product,
    in_panels,
    look_at_piece,
    look_at_product,
    not_zero,
)

WORDS = 2  # of bits at a time: as much of B as stays in the first cache while all lines pass


@compiled
def groups(width, order, few):
    """Room for lines of this width in this order, a `few` at a time: their bits, the order, the
    bits of each group; sizes, which are `few`, how many lines there are, and how many go together,
    0 if nothing is left out."""
    alive = np.zeros((len(order), parts(width, 64)), np.uint64)
    return alive, order, np.zeros_like(alive), np.array([few, 0, 0])


@compiled
def multiply(c, a, width, b, lines):
    """c += a b for the first numbers of each line of a (n, whole vectors), in panels."""
    seen = np.zeros((0, c.shape[2]), c.dtype)
    if len(b) < BESIDE:
        dense(c, a[:, : a.shape[1]], b[:, :width], len(a), seen)
    else:
        bits(a, width, lines[0])
        unite(len(a), lines)
        by_groups(c, a[:, : a.shape[1]], b[:, :width], lines, seen)


@compiled
def multiply_turned(c, a, width, d, lines, columns, seen):
    """c += a^T d, or, if there is room in `seen`, what a^T d is to c, as in `look_at_product`."""
    b = in_panels(d, c.shape[2])[: len(c), : len(a)]
    if len(c) < BESIDE:
        dense(c, a.T[:, : len(a)], b, width, seen)
    else:
        bits(a, width, lines[0])
        turn_bits(lines[0], len(a), width, columns[0])
        unite(width, columns)
        by_groups(c, a.T[:, : len(a)], b, columns, seen)


@compiled
def by_groups(c, a, b, lines, seen):
    """c += a b, or, if there is room in `seen`, what a b is to c."""
    _, order, together, (_, n, at_once) = lines
    if not at_once:
        dense(c, a, b, n, seen)
        return
    lanes, many, words = b.shape[2], parts(n, at_once), together.shape[1]
    some = words if len(seen) else WORDS
    for p in range(0, len(b), BESIDE):
        into, wide = c[p : p + BESIDE, :, :lanes], min(BESIDE, len(b) - p)
        for w in range(0, words, some):
            left, right = a[:, 64 * w :], b[p : p + BESIDE, 64 * w :, :lanes]
            for g in range(many):
                low, of = n * g // many, together[g, w : w + some]
                rows = n * (g + 1) // many - low
                if len(seen):
                    look_at_piece(into, order, left, right, of, 0, low, rows, wide, seen)  # type: ignore[call-arg]
                else:
                    add_piece(into, order, left, right, of, 0, low, rows, wide)  # type: ignore[call-arg]


@compiled
def dense(c, a, b, n, seen):
    """The same of the first n lines, with nothing left out."""
    to, of = np.arange(n), np.arange(b.shape[1])
    if len(seen):
        look_at_product(c, to, a[:, : len(of)], b, of, seen)
    else:
        add_product(c, to, a[:, : len(of)], b, of)


@compiled
def bits(a, width, found):
    """Which of the first numbers of each line of a (n, whole vectors) are not zero, into found (n,
    words)."""
    lanes = VECTOR // a.itemsize
    for b in range(len(a)):
        for w in range(found.shape[1]):
            word, here = np.uint64(0), min(64, width - 64 * w)
            for j in range(0, here, lanes):
                word |= not_zero(a, b, 64 * w + j) << np.uint64(j)  # type: ignore[call-arg]
            found[b, w] = word & (~np.uint64(0) >> np.uint64(64 - here))


@compiled
def turn_bits(alive, n, width, found):
    """The same of the columns, into found (width, words), square by square: halves change places,
    then halves of these."""
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
def unite(n, lines):
    """The bits of the first n lines, group by group."""
    alive, order, together, sizes = lines
    found, words, few = 0, alive.shape[1], sizes[0]
    for i in range(n):
        for w in range(words):
            found += ones(alive[i, w])
    sizes[1], sizes[2] = n, few if 3 * found <= 2 * 64 * words * n else 0
    many = parts(n, few)
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
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def parts(n, size):
    return (n + size - 1) // size
