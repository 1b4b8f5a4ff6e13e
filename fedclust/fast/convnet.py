"""Small convolutional networks in compiled code: blocks of convolution, 2x2 maximum (or none) and
ReLU, a perceptron.

A general library wants many channels to fill its vectors with; a picture has one or three. Here the
vectors run along the picture. With pictures of width W as rows of numbers, the place p of an output
is p + i W + j for a kernel's entry (i, j). (Places at the right edge mix two lines; they are
computed and not used.) A picture, read from c H W + i W + j on, is one row of a matrix with a row
for every entry (c, i, j) of the kernel, which nobody needs to write down: `add_product` takes the
offsets in its place. With a block's inputs X and its outputs Z before the maximum:

    Z[o, p] += sum_cij w[o, cij] X[p + offset(cij)]                          forward

Backwards, only the places p count where a maximum was and ReLU let it pass: one in four at most.
For each, with delta = dL/dZ[o, p],

    dw[o, cij] += delta X[p + offset(cij)],   dX[p + offset(cij)] += delta w[o, cij]

vector by vector. dX and the w that is added to it have the channels side by side, (place, c), and
so have dw and the X that is added to it, an output's dw staying in registers while all its places
pass: no two vectors overlap in part, which processors wait for. Only the pictures themselves have
too few channels for that: there a vector is a run, the numbers of a line of a kernel, which take
the place of eight; the rest are idle. One picture goes through all blocks, forwards and later
backwards, while its numbers are in the cache. Signs and not-a-numbers come out as PyTorch's do:
only the order of summation is left free to the compiler.

Tested against the plain loop and PyTorch's modules (tests/fast/test_convnet.py).
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided

from fedclust.fast.compiled import compiled
from fedclust.fast.normal import fill
from fedclust.fast.perceptron import (
    backward,
    before,
    copy,
    forward,
    load,
    pass_back,
    put,
    real_ones,
    softmax,
    spaces,
    step,
    stretch,
)  # fmt: skip
from fedclust.fast.products import (
    VECTOR,
    WIDE,
    add_product,
    arrays,
    everywhere,
    fma,
    in_panels,
    vectors_of,
)  # fmt: skip

RUN = 8  # numbers in the vector of a kernel's line
RUNS = 15  # of them in registers
HELD = 28 if WIDE else 14  # vectors of dw in registers
QUAD = 4  # maxima at a time


@compiled
def train(row, shape, x, y, plan, how):
    """`perceptron.train` for networks with blocks.

    x is (M, c * h * w), and `shape` is (sides, channels, kernel, widths): `sides` (blocks + 1, 2)
    are height and width of what each block and then the perceptron sees, `channels` (blocks + 1,)
    how many, `kernel` the side of their kernels, `widths` the perceptron's.
    """
    steps(row, shape, x, y, plan, how)


@compiled
def gradient(row, shape, x, y, chosen, out):
    """The gradient of the mean loss over the chosen samples (n,), into out (P,): it is the velocity
    after one step with momentum."""
    how = 0.0, 1.0, 0.0, 0.0, math.inf, 0, np.uint64(0), 0.0
    V, v_blocks = steps(row.copy(), shape, x, y, chosen.reshape(1, len(chosen)), how)
    widths, first = shape[3], len(v_blocks)
    put(v_blocks, out)
    for k in range(len(widths) - 1):
        copy(out[first + before(widths, k) :], V[k], widths[k + 1], False)


@compiled
def steps(row, shape, x, y, plan, how):
    """All steps of `train`; returns the velocities of layers and blocks."""
    (sides, channels, kernel, widths), (lr, momentum, _, prox) = shape, how[:4]
    (clip, expected, noise, scale), lanes = how[4:], VECTOR // row.itemsize
    real, blocks, layers = row.dtype.type, len(channels) - 1, len(widths) - 1
    most, gain, last = plan.shape[1], 1.0 if momentum else -lr, widths[0]
    first = weights_before(channels, kernel, blocks)
    W = load(row[first:], widths, lanes)  # (panels, in + 1, lanes)
    start, start_blocks = [v.copy() if prox else v for v in W], row[:first].copy()
    V = [np.zeros_like(v) if momentum else v for v in W]  # velocities
    v_blocks = np.zeros(first, row.dtype)
    A, dZ, dA, turned = spaces(widths, most, lanes, row)
    on, rows = [np.arange(width + 1) for width in widths], np.arange(most)
    chosen, outs = np.zeros(most, np.int64), channels[1:]
    inputs = [room(channels[k], sides[k], lanes) for k in range(blocks)]
    X = [np.zeros((most, many), row.dtype) for many in inputs]  # blocks' inputs
    spots = [places(sides[k], kernel, lanes) for k in range(blocks)]
    Z = [np.zeros((outs[k], spots[k]), row.dtype) for k in range(blocks)]
    beside = [(c + lanes - 1) // lanes * lanes for c in channels[:-1]]  # in whole vectors
    dX = [np.zeros((sides[k, 0] * sides[k, 1], beside[k]), row.dtype) for k in range(blocks)]
    across = [np.zeros_like(d) for d in dX]  # a picture's inputs
    kerns = [np.zeros((outs[k], kernel**2, beside[k]), row.dtype) for k in range(blocks)]
    dw = [np.zeros((outs[k], kernel, kernel, beside[k]), row.dtype) for k in range(blocks)]
    dw[0] = np.zeros((channels[1], channels[0], kernel, RUN), row.dtype)  # runs
    bias = [np.zeros(c, row.dtype) for c in outs]
    mine, my_bias = (
        [np.zeros_like(d) for d in dw],
        [np.zeros_like(b) for b in bias],
    )  # one picture's
    ends = sides[1:]
    where = [np.zeros((most, outs[k], ends[k, 0], ends[k, 1]), np.int32) for k in range(blocks)]
    total, e = np.zeros(first, row.dtype), np.zeros(first, np.float32)
    above = np.zeros((last // channels[-1], channels[-1]), row.dtype)
    live, delta = np.zeros(where[0][0, 0].size, np.int64), np.zeros(where[0][0, 0].size, row.dtype)
    for s in range(len(plan)):
        n = real_ones(plan[s], chosen)
        dZ[-1][:] = 0
        for i in range(n):
            dZ[-1][i, y[chosen[i]]] = 1
            put(x[chosen[i]], X[0][i])
            for k in range(blocks):
                out = X[k + 1][i] if k + 1 < blocks else A[0][i]
                weights = row[weights_before(channels, kernel, k) :]
                block(weights, X[k][i], Z[k], out, where[k][i], sides[k], kernel)
            A[0][i, last] = 1
        for k in range(layers):
            A[k + 1][:n] = 0
            forward(A[k], W[k], A[k + 1], on[k], rows[:n], k < layers - 1, widths[k + 1])
        softmax(A[-1], dZ[-1], n, widths[-1])
        share = gain / (expected if expected else n)
        if clip == math.inf:
            for i in range(n):
                stretch(dZ[-1], i, real(share))
        for k in range(layers - 1, -1, -1):
            backward(dZ[k], turned[k], W[k], dA[k], on[k][:-1], on[k + 1], n)
            if k:
                pass_back(dA[k], A[k], dZ[k - 1], n, widths[k])
        for k in range(blocks):
            weights = row[weights_before(channels, kernel, k) :]
            w = kernels(weights, outs[k], channels[k], kernel)[0]
            for o in range(outs[k]):
                side_by_side(w[o], kerns[k][o], channels[k])
            dw[k][:] = 0
            bias[k][:] = 0
        for i in range(n):
            to, to_bias = (dw, bias) if clip == math.inf else (mine, my_bias)
            for o in range(channels[-1]):
                for p in range(len(above)):
                    above[p, o] = dA[0][o * len(above) + p, i]
            for k in range(blocks - 1, -1, -1):
                high = above if k == blocks - 1 else dX[k + 1]
                through, marks = kerns[k] if k else kerns[k][:0], (live, delta)
                to_all, space = (to[k], to_bias[k]), (across[k], dX[k])
                back(X[k][i], high, where[k][i], sides[k], kernel, marks, to_all, through, space)
            if clip < math.inf:
                square = 0.0
                for k in range(blocks):
                    wide = mine[k].shape[3]
                    lines = mine[k].reshape(mine[k].size // wide, wide)
                    square += norm2(lines, wide if k else kernel)
                    square += norm2(my_bias[k].reshape(1, len(bias[k])), len(bias[k]))
                for k in range(layers):
                    a = A[k][i : i + 1]
                    square += norm2(dZ[k][i : i + 1], widths[k + 1]) * norm2(a, widths[k] + 1)
                cut = real(share * (min(1.0, clip / math.sqrt(square)) if square > 0 else 1.0))
                for k in range(blocks):
                    hand_over(mine[k].ravel(), dw[k].ravel(), cut)
                    hand_over(my_bias[k], bias[k], cut)
                for k in range(layers):
                    stretch(dZ[k], i, cut)
        for k in range(blocks):
            in_order(dw[k], total[weights_before(channels, kernel, k) :], channels[k], k > 0)
            end = weights_before(channels, kernel, k + 1)
            put(bias[k], total[end - len(bias[k]) :])
        if scale:
            fill(e, noise, s * len(row))
            add(total, e, real(gain * scale))
        for k in range(layers):
            place = s * len(row) + first + before(widths, k)
            step(V[k], W[k], start[k], A[k], dZ[k], on[k], rows[:n], widths[k + 1], how, place)
        descend(row[:first], start_blocks, v_blocks, total, real(gain), how)
    for k in range(layers):
        copy(row[first + before(widths, k) :], W[k], widths[k + 1], False)
    return V, v_blocks


@compiled
def predict(row, shape, x, out):
    """Logits of samples x (B, c * h * w) into out (B, classes)."""
    (sides, channels, kernel, widths), lanes = shape, VECTOR // row.itemsize
    blocks, layers = len(channels) - 1, len(widths) - 1
    first, most = weights_before(channels, kernel, blocks), max(min(len(x), 64), 1)
    W, A = load(row[first:], widths, lanes), spaces(widths, most, lanes, row)[0]
    on, rows = [np.arange(width + 1) for width in widths], np.arange(most)
    X = [np.zeros(room(channels[k], sides[k], lanes), row.dtype) for k in range(blocks)]
    outs, ends = channels[1:], sides[1:]
    spots = [places(sides[k], kernel, lanes) for k in range(blocks)]
    Z = [np.zeros((outs[k], spots[k]), row.dtype) for k in range(blocks)]
    where = [np.zeros((outs[k], ends[k, 0], ends[k, 1]), np.int32) for k in range(blocks)]
    for low in range(0, len(x), most):
        n = min(most, len(x) - low)
        for i in range(n):
            put(x[low + i], X[0])
            for k in range(blocks):
                to = X[k + 1] if k + 1 < blocks else A[0][i]
                weights = row[weights_before(channels, kernel, k) :]
                block(weights, X[k], Z[k], to, where[k], sides[k], kernel)
            A[0][i, widths[0]] = 1
        for k in range(layers):
            A[k + 1][:n] = 0
            forward(A[k], W[k], A[k + 1], on[k], rows[:n], k < layers - 1, widths[k + 1])
        for i in range(n):
            put(A[-1][i, : widths[-1]], out[low + i])


@compiled
def weights_before(channels, kernel, k):
    """How many numbers of the model come before block k."""
    total = 0
    for j in range(k):
        total += channels[j + 1] * (channels[j] * kernel * kernel + 1)
    return total


@compiled
def places(side, kernel, lanes):
    """Of a block's outputs before the maximum, in whole vectors."""
    return ((side[0] - kernel + 1) * side[1] + lanes - 1) // lanes * lanes


@compiled
def room(channels, side, lanes):
    """For pictures, and for what is read behind them."""
    return channels * side[0] * side[1] + RUN + 2 * lanes


@compiled
def kernels(row, n_out, n_in, kernel):
    """The first block in `row`: its weight (out, in * kernel * kernel) and its bias (out,)."""
    width = n_in * kernel * kernel
    return row[: n_out * width].reshape(n_out, width), row[n_out * width : n_out * (width + 1)]


@compiled
def shifted(x, many, lanes):
    """x (L,) from every place on, in panels: [p, o, l] is x[p * lanes + o + l]."""
    s = x.itemsize
    return as_strided(x, (many, 1, lanes), (lanes * s, s, s))


@compiled
def block(row, x, z, out, where, side, kernel):
    """Convolution, 2x2 maximum if `where` has room for no more, and its places, ReLU: a picture x
    (in * H * W + room,) -> out (out * h * w + ...,)."""
    (n_out, total), lanes = z.shape, VECTOR // x.itemsize
    n_in = (len(x) - RUN - 2 * lanes) // (side[0] * side[1])
    w, b = kernels(row, n_out, n_in, kernel)
    of, j = np.empty(w.shape[1], np.int64), 0
    for c in range(n_in):
        for p in range(kernel):
            for q in range(kernel):
                of[j] = (c * side[0] + p) * side[1] + q
                j += 1
    for o in range(n_out):
        for p in range(total):
            z[o, p] = b[o]
    add_product(
        in_panels(z, lanes),
        np.arange(n_out),
        w[:, : len(of)],
        shifted(x, total // lanes, lanes),
        of,
    )
    if where.shape[1] == side[0] - kernel + 1:
        positive(z, side[1], out, where)
    else:
        maximum(z, side[1], out, where)


@compiled
def norm2(a, width):
    total = 0.0
    for row in a:
        for i in range(width):
            total += row[i] * row[i]
    return total


@compiled
def positive(z, width, out, place):
    """ReLU alone, and which numbers pass: their places, else -1."""
    n_out, high, wide = place.shape
    flat, places = z.ravel(), place.ravel()
    for o in range(n_out):
        for i in range(high):
            to, line = (o * high + i) * wide, o * z.shape[1] + i * width
            for j in range(wide):
                stopped = flat[line + j] <= 0
                out[to + j] = 0 if stopped else flat[line + j]
                places[to + j] = -1 if stopped else i * width + j


@compiled
def maximum(z, width, out, place):
    """Maxima of 2x2 numbers, in lines of `width`, and where they are, -1 where ReLU stops them."""
    n_out, high, wide = place.shape
    flat, places = z.ravel(), place.ravel()
    for o in range(n_out):
        for i in range(high):
            first, to, line = 2 * i * width, (o * high + i) * wide, o * z.shape[1] + 2 * i * width
            for j in range(0, wide - QUAD + 1, QUAD):
                maxima(flat, line + 2 * j, width, out, places, to + j, first + 2 * j)  # type: ignore[call-arg]
            for j in range(wide // QUAD * QUAD, wide):
                at = line + 2 * j
                a, b, c, d = flat[at], flat[at + 1], flat[at + width], flat[at + width + 1]
                right = (b > a) | (b != b)  # not-a-number is larger than any
                most, which = (b if right else a), (1 if right else 0)
                right = (d > c) | (d != d)
                other, below = (d if right else c), (width + 1 if right else width)
                lower = (other > most) | (other != other)
                most, which = (other if lower else most), (below if lower else which)
                out[to + j] = 0 if most <= 0 else most
                places[to + j] = -1 if most <= 0 else first + 2 * j + which


@intrinsic
def maxima(typing, z, at, width, out, places, to, first):
    """QUAD of these at once."""

    def generate(target, builder, signature, arguments):
        number, size, word = target.get_value_type(z.dtype), z.dtype.bitwidth // 8, ir.IntType(32)
        vector, place = ir.VectorType(number, QUAD), ir.VectorType(word, QUAD)
        both = ir.VectorType(number, 2 * QUAD)
        numbers, made, where = (
            array.data for array in arrays(target, builder, signature, arguments)
        )
        _, start, width, _, _, to, first = arguments

        def line(i):  # every other number, and those between
            at = builder.bitcast(builder.gep(numbers, [i]), both.as_pointer())
            row = builder.load(at, align=size)
            halves = [ir.Constant(place, [2 * j + odd for j in range(QUAD)]) for odd in (0, 1)]
            return [builder.shuffle_vector(row, row, half) for half in halves]

        def larger(one, other):  # not-a-number is larger than any
            more = builder.fcmp_ordered(">", other[0], one[0])
            second = builder.or_(more, builder.fcmp_unordered("uno", other[0], other[0]))
            return [builder.select(second, b, a) for a, b in zip(one, other, strict=True)]

        corner = everywhere(builder, builder.trunc(first, word), place)
        left = builder.add(corner, ir.Constant(place, [2 * j for j in range(QUAD)]))
        right = builder.add(left, ir.Constant(place, [1] * QUAD))
        down = everywhere(builder, builder.trunc(width, word), place)
        (a, b), (c, d) = line(start), line(builder.add(start, width))
        above = larger((a, left), (b, right))
        below = larger((c, builder.add(left, down)), (d, builder.add(right, down)))
        most, which = larger(above, below)
        nought = ir.Constant(vector, [0.0] * QUAD)
        stopped = builder.fcmp_ordered("<=", most, nought)
        most = builder.select(stopped, nought, most)
        which = builder.select(stopped, ir.Constant(place, [-1] * QUAD), which)
        for data, value, align in ((made, most, size), (where, which, 4)):
            at = builder.bitcast(builder.gep(data, [to]), value.type.as_pointer())
            builder.store(value, at, align=align)
        return target.get_dummy_value()

    return types.void(z, types.int64, types.int64, out, places, types.int64, types.int64), generate


@compiled
def side_by_side(values, to, many):
    """(in * places + ...,) -> (places, in + ...)"""
    for c in range(many):
        for p in range(len(to)):
            to[p, c] = values[c * len(to) + p]


@compiled
def in_order(dw, row, n_in, beside):
    """Gradients of a block's kernels, channels beside each other or runs, as the kernels lie in a
    row."""
    kernel, i = dw.shape[2], 0
    for o in range(len(dw)):
        for c in range(n_in):
            for p in range(kernel):
                for q in range(kernel):
                    row[i] = dw[o, p, q, c] if beside else dw[o, c, p, q]
                    i += 1


@compiled
def back(x, above, where, side, kernel, marks, sums, kerns, space):
    """Adds a picture's part to the gradient of a block's kernels and biases. `above` (h * w, out)
    is dL/d(its outputs); dx (H * W, in) becomes that of its inputs, if there are kernels: not for
    the first block. `across` is room."""
    (live, delta), (dw, db), (across, dx) = marks, sums, space
    (n_out, high, wide), width, size = where.shape, side[1], side[0] * side[1]
    if len(kerns):
        dx[:] = 0
        side_by_side(x, across, (len(x) - RUN - 2 * VECTOR // x.itemsize) // size)
    for o in range(n_out):
        n = 0
        for r in range(high):
            for q in range(wide):
                live[n], delta[n] = where[o, r, q], above[r * wide + q, o]
                n += where[o, r, q] >= 0
        for i in range(n):
            db[o] += delta[i]
        if len(kerns):
            some = max(HELD // kernel, 1)
            for low in range(0, dx.shape[1], VECTOR // x.itemsize):
                for p in range(0, kernel, some):
                    add_places(dw[o, p : p + some], low, p * width, width, across, live[:n], delta)  # type: ignore[call-arg]
                add_kernels(dx, low, width, kerns[o], kernel, live[:n], delta)  # type: ignore[call-arg]
        else:
            some = max(RUNS // kernel, 1)
            for c in range(0, dw.shape[1], some):
                add_runs(dw[o, c : c + some], x, c * size, size, width, live[:n], delta)  # type: ignore[call-arg]


@intrinsic
def add_places(typing, dw, low, start, width, x, live, delta):
    """dw[p, q, low:] += delta[i] x[start + live[i] + p width + q, low:], a vector each, summed over
    i in registers."""

    def generate(target, builder, signature, arguments):
        vector, word = vectors_of(target, dw.dtype), ir.IntType(64)
        to, values, places, deltas = arrays(target, builder, signature, arguments)
        many, kernel, beside = cgutils.unpack_tuple(builder, to.shape, 3)
        _, low, start, width, *_ = arguments

        def vectors(array, row):
            place = builder.gep(array.data, [builder.add(builder.mul(row, beside), low)])
            return builder.bitcast(place, vector.as_pointer())

        def piece(n, side):
            def value(corner, j):
                row = builder.add(builder.mul(width, word(j // side)), word(j % side))
                return vectors(values, builder.add(corner, row))

            kept = [vectors(to, word(j)) for j in range(n * side)]
            in_registers(builder, kept, value, start, places, deltas)

        sides = range(1, RUN + 1)
        sizes = [(n, k) for k in sides for n in range(1, min(max(HELD // k, 1), k) + 1)]
        one_of(builder, (many, kernel), sizes, piece)
        return target.get_dummy_value()

    return types.void(dw, types.int64, types.int64, types.int64, x, live, delta), generate


@intrinsic
def add_runs(typing, runs, x, at, channel, line, live, delta):
    """runs (channels, kernel, RUN) += delta[i] x[at + live[i] + c channel + p line :], summed over
    i in registers."""

    def generate(target, builder, signature, arguments):
        number, word = target.get_value_type(runs.dtype), ir.IntType(64)
        line_of = ir.VectorType(number, RUN).as_pointer()
        to, pixels, places, deltas = arrays(target, builder, signature, arguments)
        many, kernel, _ = cgutils.unpack_tuple(builder, to.shape, 3)
        _, _, start, channel, line, *_ = arguments

        def piece(n, side):
            def run(corner, j):
                c, p = word(j // side), word(j % side)
                offset = builder.add(builder.mul(channel, c), builder.mul(line, p))
                at = builder.gep(pixels.data, [builder.add(corner, offset)])
                return builder.bitcast(at, line_of)

            first = builder.bitcast(to.data, line_of)
            kept = [builder.gep(first, [word(j)]) for j in range(n * side)]
            in_registers(builder, kept, run, start, places, deltas)

        sides = range(1, RUN + 1)
        sizes = [(n, k) for k in sides for n in range(1, max(RUNS // k, 1) + 1)]
        one_of(builder, (many, kernel), sizes, piece)
        return target.get_dummy_value()

    return types.void(runs, x, types.int64, types.int64, types.int64, live, delta), generate


@intrinsic
def add_kernels(typing, dx, low, width, kern, kernel, live, delta):
    """dx[live[i] + p width + q, low:] += delta[i] kern[p kernel + q, low:], a vector each."""

    def generate(target, builder, signature, arguments):
        size, vector, word = dx.dtype.bitwidth // 8, vectors_of(target, dx.dtype), ir.IntType(64)
        to, weights, places, deltas = arrays(target, builder, signature, arguments)
        _, beside = cgutils.unpack_tuple(builder, to.shape, 2)
        (length,) = cgutils.unpack_tuple(builder, places.shape, 1)
        _, low, width, _, kernel, *_ = arguments

        def at(array, row):
            place = builder.gep(array.data, [builder.add(builder.mul(row, beside), low)])
            return builder.bitcast(place, vector.as_pointer())

        def piece(side):
            with cgutils.for_range(builder, length) as loop:
                delta = builder.load(builder.gep(deltas.data, [loop.index]))
                every = everywhere(builder, delta, vector)
                corner = builder.load(builder.gep(places.data, [loop.index]))
                for p in range(side):
                    line = builder.add(corner, builder.mul(width, word(p)))
                    for q in range(side):
                        place = at(to, builder.add(line, word(q)))
                        factor = builder.load(at(weights, word(p * side + q)), align=size)
                        total = fma(builder, every, factor, builder.load(place, align=size))
                        builder.store(total, place, align=size)

        one_of(builder, (kernel,), [(side,) for side in range(1, RUN + 1)], piece)
        return target.get_dummy_value()

    return types.void(dx, types.int64, types.int64, kern, types.int64, live, delta), generate


def one_of(builder, given, sizes, piece):
    """A piece of code for each of these sizes, and the way to the one whose size is given."""
    word, base, number = ir.IntType(64), RUNS + 1, given[0]
    for more in given[1:]:
        number = builder.add(builder.mul(number, ir.IntType(64)(base)), more)
    done = builder.append_basic_block("done")
    which = builder.switch(number, done)
    for size in sizes:
        place = 0
        for side in size:
            place = place * base + side
        which.add_case(word(place), block := builder.append_basic_block(f"piece{place}"))
        builder.position_at_end(block)
        piece(*size)
        builder.branch(done)
    builder.position_at_end(done)


def in_registers(builder, kept, value, start, places, deltas):
    """The vectors at `kept` += delta[i] value(start + place[i], j), summed over i before they are
    written."""
    vector = kept[0].type.pointee
    size = 4 if vector.element == ir.FloatType() else 8
    (length,) = cgutils.unpack_tuple(builder, places.shape, 1)
    sums = [cgutils.alloca_once(builder, vector) for _ in kept]
    for place, total in zip(kept, sums, strict=True):
        builder.store(builder.load(place, align=size), total)
    with cgutils.for_range(builder, length) as loop:
        delta = builder.load(builder.gep(deltas.data, [loop.index]))
        every = everywhere(builder, delta, vector)
        corner = builder.add(start, builder.load(builder.gep(places.data, [loop.index])))
        for j, total in enumerate(sums):
            factor = builder.load(value(corner, j), align=size)
            builder.store(fma(builder, every, factor, builder.load(total)), total)
    for place, total in zip(kept, sums, strict=True):
        builder.store(builder.load(total), place, align=size)


@compiled
def hand_over(mine, all_, share):
    """all += share * mine, and mine is empty again."""
    for i in range(len(mine)):
        all_[i] += share * mine[i]
        mine[i] = 0


@compiled
def add(g, e, scale):
    for i in range(len(g)):
        g[i] += scale * g.dtype.type(e[i])


@compiled
def descend(w, start, v, g, gain, how):
    """As `perceptron.step`, for weights that lie in a row; g is already times gain."""
    real = w.dtype.type
    lr, momentum, weight_decay, prox = real(how[0]), real(how[1]), real(how[2]), real(how[3])
    for i in range(len(w)):
        v[i] = momentum * v[i] + gain * (weight_decay * w[i] + prox * (w[i] - start[i])) + g[i]
        w[i] += -lr * v[i] if momentum else v[i]
