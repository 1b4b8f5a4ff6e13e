"""Perceptrons that clients share: every client's batch under each of K models, compiled, on the
sums of `perceptron`.

With x = u 1 + v, where u is the value of the images' background, and the sum r over all pixels, the
first layer's outputs and the gradient G of its weights are

    x W = v W + u r                              r = 1^T W, (out,)
    G = v^T dZ + u 1 s^T                         s = sum of dZ over the batch, (out,)

so that one step from a model for many clients adds u s once. The gradient of a (client, model) pair
is never kept: its products with a direction and with itself are summed while it is made.

Tested against Joint's plain way, with and without background (tests/fast/test_candidates.py).
"""

import math

import numpy as np

from fedclust.fast.compiled import compiled
from fedclust.fast.perceptron import (
    background,
    backward,
    before,
    column_sums,
    copy,
    forward,
    load,
    pass_back,
    put,
    shown,
    softmax,
    spaces,
    spread,
    step,
    stretch,
)  # fmt: skip
from fedclust.fast.products import VECTOR, in_panels, look_at_product

SLACK = 1e-5  # of a score: what rounding may add to it
TOGETHER = 64  # samples in a prediction


@compiled
def decide(rows, towards, widths, x, y, mask, margin, sign, loss, dot, square):
    """`choice.of_perceptrons` for models (K, P), directions (K, P) or none, batches (N, B, in), (N,
    B), (N, B), margins (N,); loss, dot and square (N, K) are filled.

    With a `sign`, the models are looked at in the order of their losses, until no other can win.
    """
    lanes, layers, most = VECTOR // rows.itemsize, len(widths) - 1, x.shape[1]
    W, D = all_panels(rows, widths, lanes), all_panels(towards, widths, lanes)
    A = [a for _ in rows for a in spaces(widths, most, lanes, rows)[0]]  # model j's: A[j * width:]
    room, width = spaces(widths, most, lanes, rows), layers + 1
    images, dZ, seen = room[0][0], room[1], np.zeros((2, lanes), rows.dtype)
    on, samples = [np.arange(width + 1) for width in widths], np.arange(most)
    r = [column_sums(W[j * layers]) for j in range(len(rows))]
    chosen = np.zeros(most, np.int64)
    for i in range(len(x)):
        n = real_ones(mask[i], chosen)
        u = background(x[i, chosen[0]])
        lay_out(x[i], chosen[:n], u, images)
        for j in range(len(rows)):
            mine = A[j * width :]
            outputs(images, u, r[j], W[j * layers :], mine, widths, on, samples[:n])
            loss[i, j] = mean_loss(mine[layers], y[i], chosen[:n], widths[-1])
        ranks, half, best = ascending(loss[i]), margin[i] / 2, -math.inf
        reach, bounded = loss[i, ranks[0]] + margin[i], sign != 0 and margin[i] < math.inf
        if len(towards) == 0 or len(rows) == 1 or not loss[i, ranks[1]] <= reach:
            continue
        lay_out(x[i], chosen[:n], x.dtype.type(0), images)
        for j in ranks:
            if not loss[i, j] <= reach or (bounded and half + SLACK - loss[i, j] < best):
                break  # not even the best cosine, 1, would do
            mine = A[j * width :]
            deltas(mine, W[j * layers :], y[i], chosen[:n], widths, on, room, 1.0 / n)
            seen[:] = 0
            for k in range(layers):
                inputs = (images if k == 0 else mine[k])[:n, : len(on[k])].T
                toward, lines = D[j * layers + k][:, :, :lanes], in_panels(dZ[k], lanes)[:, :n]
                look_at_product(toward, on[k], inputs, lines, samples[:n], seen)
            dot[i, j], square[i, j] = seen[0].sum(), seen[1].sum()
            if bounded:
                norms = math.sqrt(square[i, j] * norm2(towards[j]))
                cosine = sign * dot[i, j] / norms if norms > 0 else 0.0
                best = max(best, half * cosine - loss[i, j])


@compiled
def mean_step(row, widths, x, y, mask, members, lr, out):
    """Into `out`, the mean over these members' batches of their models one step from `row` (P,)."""
    lanes, layers, most = VECTOR // row.itemsize, len(widths) - 1, x.shape[1]
    W, room = load(row, widths, lanes), spaces(widths, most, lanes, row)
    A, dZ, images = room[0], room[1], np.zeros_like(room[0][0])
    ends, chosen = [w.copy() for w in W], np.zeros(most, np.int64)
    on, samples = [np.arange(width + 1) for width in widths], np.arange(most)
    r, drift = column_sums(W[0]), np.zeros(dZ[0].shape[1], row.dtype)
    how = 1.0, 0.0, 0.0, 0.0, math.inf, 0, np.uint64(0), 0.0  # the rate is in dZ
    for i in members:
        n = real_ones(mask[i], chosen)
        u = background(x[i, chosen[0]])
        lay_out(x[i], chosen[:n], u, images)
        outputs(images, u, r, W, A, widths, on, samples[:n])
        deltas(A, W, y[i], chosen[:n], widths, on, room, -lr / n / len(members))
        for k in range(layers):
            inputs, v = images if k == 0 else A[k], ends[k]
            step(v, v, v, inputs, dZ[k], on[k], samples[:n], widths[k + 1], how, 0)
        for b in range(n):
            for o in range(len(drift)):
                drift[o] += u * dZ[0][b, o]
    spread(ends[0], drift)
    for k in range(layers):
        copy(out[before(widths, k) :], ends[k], widths[k + 1], False)


@compiled
def predict(row, shape, x, out):
    """Logits of samples x (B, in) into out (B, classes)."""
    (widths,) = shape
    lanes, layers = VECTOR // row.itemsize, len(widths) - 1
    W, A = load(row, widths, lanes), spaces(widths, TOGETHER, lanes, row)[0]
    on, samples = [np.arange(width + 1) for width in widths], np.arange(TOGETHER)
    images, r, u = np.zeros_like(A[0]), column_sums(W[0]), background(x[0])
    for low in range(0, len(x), TOGETHER):
        n = min(TOGETHER, len(x) - low)
        lay_out(x[low : low + n], samples[:n], u, images)
        outputs(images, u, r, W, A, widths, on, samples[:n])
        for b in range(n):
            put(A[layers][b, : widths[-1]], out[low + b])


@compiled
def all_panels(rows, widths, lanes):
    """Of all models: layer k of model j is at j * layers + k."""
    return [w for j in range(len(rows)) for w in load(rows[j], widths, lanes)]


@compiled
def real_ones(mask, chosen):
    n = 0
    for i in range(len(mask)):
        chosen[n] = i
        n += mask[i]
    return n


@compiled
def lay_out(x, chosen, u, images):
    """The images less u, each with a 1 for the bias."""
    for b in range(len(chosen)):
        shown(x[chosen[b]], u, images[b])


@compiled
def outputs(images, u, r, W, A, widths, on, samples):
    """Of all layers, into A[1], A[2], ..."""
    for k in range(len(widths) - 1):
        z = A[k + 1]
        for b in samples:
            z[b] = 0
            for o in range(len(r) if k == 0 else 0):
                z[b, o] = u * r[o]
        a, hidden = images if k == 0 else A[k], k < len(widths) - 2
        forward(a, W[k], z, on[k], samples, hidden, widths[k + 1])


@compiled
def deltas(A, W, y, chosen, widths, on, room, share):
    """dL/dz of every layer for the loss times `share`. The logits are lost."""
    (_, dZ, dA, turned), n, layers = room, len(chosen), len(widths) - 1
    real = dZ[0].dtype.type
    for b in range(n):
        dZ[-1][b] = 0
        dZ[-1][b, y[chosen[b]]] = 1
    softmax(A[layers], dZ[-1], n, widths[-1])
    for b in range(n):
        stretch(dZ[-1], b, real(share))
    for k in range(layers - 1, 0, -1):
        backward(dZ[k], turned[k], W[k], dA[k], on[k][:-1], on[k + 1], n)
        pass_back(dA[k], A[k], dZ[k - 1], n, widths[k])


@compiled
def mean_loss(z, y, chosen, classes):
    """Mean cross entropy of logits (B, classes)."""
    total = 0.0
    for b in range(len(chosen)):
        most, mass = z[b, 0], 0.0
        for c in range(1, classes):
            most = max(most, z[b, c])
        for c in range(classes):
            mass += math.exp(z[b, c] - most)
        total += math.log(mass) + most - z[b, y[chosen[b]]]
    return total / len(chosen)


@compiled
def ascending(values):
    """Their order. Not-a-numbers stay where they were."""
    order = np.arange(len(values))
    for i in range(1, len(values)):
        j = i
        while j and values[order[j]] < values[order[j - 1]]:
            order[j], order[j - 1] = order[j - 1], order[j]
            j -= 1
    return order


@compiled
def norm2(v):
    total = 0.0
    for value in v:
        total += value * value
    return total
