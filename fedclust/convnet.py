"""Small convolutional networks in compiled code: blocks of convolution, 2x2 maximum and ReLU, then a perceptron.

A general library wants many channels to fill its vectors with; a picture has one or three. Here the vectors run along
the picture. With pictures of width W as rows of numbers, the place p of an output is p + i W + j for a kernel's entry
(i, j). (Places at the right edge mix two lines; they are computed and not used.) A picture, read from c H W + i W + j
on, is one row of a matrix with a row for every entry (c, i, j) of the kernel, which nobody needs to write down:
`add_product` takes the offsets in its place. With a block's inputs X and its outputs Z before the maximum:

    Z[o, p] += sum_cij w[o, cij] X[p + offset(cij)]                          forward

Backwards, only the places p count where a maximum was and ReLU let it pass: one in four at most. For each, with
delta = dL/dZ[o, p],

    dw[o, cij] += delta X[p + offset(cij)],   dX[p + offset(cij)] += delta w[o, cij]

run by run: the numbers of a line of a kernel. A run takes the place of eight, a vector, of which the rest are idle.
One picture goes through all blocks, forwards and later backwards, while its numbers are in the cache. Signs and
not-a-numbers come out as PyTorch's do: only the order of summation is left free to the compiler.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided

from fedclust.compiled import compiled
from fedclust.normal import fill
from fedclust.perceptron import (
    VECTOR,
    add_product,
    backward,
    before,
    copy,
    forward,
    in_panels,
    load,
    pass_back,
    put,
    real_ones,
    softmax,
    spaces,
    step,
    stretch,
    turn,
)

RUN = 8  # numbers in the vector of a kernel's line


@compiled
def train(
    row, sides, channels, kernel, widths, x, y, plan, lr, momentum, weight_decay, prox, clip, expected, noise, scale
):
    """`perceptron.train` for networks with blocks: x is (M, c * h * w), `sides` (blocks + 1, 2) are height and width of
    what each block and then the perceptron sees, `channels` (blocks + 1,) how many, `kernel` the side of their
    kernels, `widths` the perceptron's.
    """
    real, lanes, blocks, layers = row.dtype.type, VECTOR // row.itemsize, len(channels) - 1, len(widths) - 1
    most, gain, last = plan.shape[1], 1.0 if momentum else -lr, widths[0]
    first = weights_before(channels, kernel, blocks)
    W = load(row[first:], widths, lanes)  # (panels, in + 1, lanes)
    start, start_blocks = [v.copy() if prox else v for v in W], row[:first].copy()
    V, v_blocks = [np.zeros_like(v) if momentum else v for v in W], np.zeros(first, row.dtype)  # velocities
    A, dZ, dA, turned = spaces(widths, most, lanes, row)
    on, rows, chosen = [np.arange(width + 1) for width in widths], np.arange(most), np.zeros(most, np.int64)
    X = [np.zeros((most, room(channels[k], sides[k], lanes)), row.dtype) for k in range(blocks)]  # blocks' inputs
    Z = [np.zeros((channels[k + 1], places(sides[k], kernel, lanes)), row.dtype) for k in range(blocks)]
    dX = [np.zeros_like(a[0]) for a in X]
    runs = [np.zeros((channels[k + 1] * channels[k] * kernel, RUN), row.dtype) for k in range(blocks)]  # kernels
    druns, bias = [np.zeros_like(r) for r in runs], [np.zeros(c, row.dtype) for c in channels[1:]]  # their gradients
    mine, my_bias = [np.zeros_like(r) for r in runs], [np.zeros_like(b) for b in bias]  # the same of one picture
    where = [np.zeros((most, channels[k + 1], sides[k + 1, 0], sides[k + 1, 1]), np.int8) for k in range(blocks)]
    gradient, e, above = np.zeros(first, row.dtype), np.zeros(first, np.float32), np.zeros((most, last), row.dtype)
    for s in range(len(plan)):
        n = real_ones(plan[s], chosen)
        dZ[-1][:] = 0
        for i in range(n):
            dZ[-1][i, y[chosen[i]]] = 1
            put(x[chosen[i]], X[0][i])
            for k in range(blocks):
                out = X[k + 1][i] if k + 1 < blocks else A[0][i]
                block(row[weights_before(channels, kernel, k) :], X[k][i], Z[k], out, where[k][i], sides[k], kernel)
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
        turn(dA[0][:last, :n], above)
        for k in range(blocks):
            in_runs(row[weights_before(channels, kernel, k) :], runs[k], kernel)
            druns[k][:] = 0
            bias[k][:] = 0
        for i in range(n):
            to, to_bias = (druns, bias) if clip == math.inf else (mine, my_bias)
            for k in range(blocks - 1, -1, -1):
                high = above[i] if k == blocks - 1 else dX[k + 1]
                back(
                    X[k][i],
                    high,
                    where[k][i],
                    sides[k],
                    kernel,
                    runs[k].ravel(),
                    dX[k],
                    to[k].ravel(),
                    to_bias[k],
                    k > 0,
                )
            if clip < math.inf:
                square = 0.0
                for k in range(blocks):
                    square += norm2(mine[k], kernel) + norm2(my_bias[k].reshape(1, len(bias[k])), len(bias[k]))
                for k in range(layers):
                    a = A[k][i : i + 1]
                    square += norm2(dZ[k][i : i + 1], widths[k + 1]) * norm2(a, widths[k] + 1)
                cut = real(share * (min(1.0, clip / math.sqrt(square)) if square > 0 else 1.0))
                for k in range(blocks):
                    hand_over(mine[k].ravel(), druns[k].ravel(), cut)
                    hand_over(my_bias[k], bias[k], cut)
                for k in range(layers):
                    stretch(dZ[k], i, cut)
        for k in range(blocks):
            in_kernels(druns[k], gradient[weights_before(channels, kernel, k) :], kernel)
            end = weights_before(channels, kernel, k + 1)
            put(bias[k], gradient[end - len(bias[k]) :])
        if scale:
            fill(e, noise, s * len(row))
            add(gradient, e, real(gain * scale))
        for k in range(layers):
            place = s * len(row) + first + before(widths, k)
            step(V[k], W[k], start[k], A[k], dZ[k], on[k], rows[:n], widths[k + 1], real(lr), real(momentum),
                 real(weight_decay), real(prox), real(scale), noise, place)  # fmt: skip
        descend(row[:first], start_blocks, v_blocks, gradient, real(lr), real(gain), real(momentum),
                real(weight_decay), real(prox))  # fmt: skip
    for k in range(layers):
        copy(row[first + before(widths, k) :], W[k], widths[k + 1], False)


@compiled
def predict(row, sides, channels, kernel, widths, x, out):
    """Logits of samples x (B, c * h * w) into out (B, classes)."""
    lanes, blocks, layers = VECTOR // row.itemsize, len(channels) - 1, len(widths) - 1
    first, most = weights_before(channels, kernel, blocks), max(min(len(x), 64), 1)
    W, A = load(row[first:], widths, lanes), spaces(widths, most, lanes, row)[0]
    on, rows = [np.arange(width + 1) for width in widths], np.arange(most)
    X = [np.zeros(room(channels[k], sides[k], lanes), row.dtype) for k in range(blocks)]
    Z = [np.zeros((channels[k + 1], places(sides[k], kernel, lanes)), row.dtype) for k in range(blocks)]
    where = [np.zeros((channels[k + 1], sides[k + 1, 0], sides[k + 1, 1]), np.int8) for k in range(blocks)]
    for low in range(0, len(x), most):
        n = min(most, len(x) - low)
        for i in range(n):
            put(x[low + i], X[0])
            for k in range(blocks):
                to = X[k + 1] if k + 1 < blocks else A[0][i]
                block(row[weights_before(channels, kernel, k) :], X[k], Z[k], to, where[k], sides[k], kernel)
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
    """Convolution, 2x2 maximum and its places, ReLU: a picture x (in * H * W + room,) -> out (out * h * w + ...,)."""
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
    add_product(in_panels(z, lanes), np.arange(n_out), w[:, : len(of)], shifted(x, total // lanes, lanes), of)
    maximum(z, side[1], out, where)


@compiled
def norm2(a, width):
    total = 0.0
    for row in a:
        for i in range(width):
            total += row[i] * row[i]
    return total


@compiled
def maximum(z, width, out, place):
    """Maxima of 2x2 numbers, in lines of `width`, and their places: 0 1 above, 2 3 below, -1 where ReLU stops them."""
    n_out, high, wide = place.shape
    for o in range(n_out):
        for i in range(high):
            for j in range(wide):
                at = 2 * i * width + 2 * j
                a, b, c, d = z[o, at], z[o, at + 1], z[o, at + width], z[o, at + width + 1]
                right = (b > a) | (b != b)  # not-a-number is larger than any
                most, which = (b if right else a), (1 if right else 0)
                right = (d > c) | (d != d)
                other, where = (d if right else c), (3 if right else 2)
                below = (other > most) | (other != other)
                most, which = (other if below else most), (where if below else which)
                out[(o * high + i) * wide + j] = 0 if most <= 0 else most
                place[o, i, j] = -1 if most <= 0 else which


@compiled
def in_runs(row, runs, kernel):
    for i in range(len(runs)):
        for j in range(kernel):
            runs[i, j] = row[i * kernel + j]


@compiled
def in_kernels(runs, row, kernel):
    for i in range(len(runs)):
        for j in range(kernel):
            row[i * kernel + j] = runs[i, j]


@compiled
def back(x, above, where, side, kernel, runs, dx, druns, db, further):
    """Adds a picture's part to the gradient of a block's kernels and biases; `above` is dL/d(its outputs), dx becomes
    that of its inputs, if anybody wants it `further` down."""
    n_out, high, wide = where.shape
    lines = len(runs) // (n_out * RUN)
    offset = np.empty(lines, np.int64)
    for line in range(lines):
        offset[line] = line // kernel * side[0] * side[1] + line % kernel * side[1]
    if further:
        dx[:] = 0
    for o in range(n_out):
        for r in range(high):
            for q in range(wide):
                at = where[o, r, q]
                if at >= 0:
                    delta = above[(o * high + r) * wide + q]
                    db[o] += delta
                    first, own = (2 * r + at // 2) * side[1] + 2 * q + at % 2, o * lines * RUN
                    for line in range(lines):
                        add_run(druns, own + line * RUN, x, first + offset[line], delta)  # type: ignore[call-arg]
                    if further:
                        for line in range(lines):
                            add_run(dx, first + offset[line], runs, own + line * RUN, delta)  # type: ignore[call-arg]


@intrinsic
def add_run(typing, to, i, x, j, factor):
    """to[i : i + RUN] += factor * x[j : j + RUN]"""

    def generate(target, builder, signature, arguments):
        number, size = target.get_value_type(to.dtype), to.dtype.bitwidth // 8
        vector, word = ir.VectorType(number, RUN), ir.IntType(32)
        kind = ir.FunctionType(vector, [vector] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{RUN}f{8 * size}")

        def run(array, k):
            data = cgutils.create_struct_proxy(signature.args[array])(target, builder, arguments[array]).data
            return builder.bitcast(builder.gep(data, [arguments[k]]), vector.as_pointer())

        nothing = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(nothing, arguments[4], word(0))
        every = builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(word, RUN), [0] * RUN))
        place = run(0, 1)
        left, right = builder.load(place, align=size), builder.load(run(2, 3), align=size)
        builder.store(builder.call(fma, [every, right, left]), place, align=size)
        return target.get_dummy_value()

    return types.void(to, types.int64, x, types.int64, to.dtype), generate


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
def descend(w, start, v, g, lr, gain, momentum, weight_decay, prox):
    """As `perceptron.step`, for weights that lie in a row; g is already times gain."""
    for i in range(len(w)):
        v[i] = momentum * v[i] + gain * (weight_decay * w[i] + prox * (w[i] - start[i])) + g[i]
        w[i] += -lr * v[i] if momentum else v[i]
