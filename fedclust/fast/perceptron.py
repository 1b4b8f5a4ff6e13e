"""Perceptrons trained in compiled code: one client at a time, its weights in the processor's cache
all the while.

With logits z = W a + b of a layer's input a: dL/dz = softmax(z) - onehot at the top, dL/dW = dz
a^T, dL/da = W^T dz, and a ReLU passes dL/da on where a > 0. Over a batch all of it is sums of
products, C += A B:

    Z    += A W       forward           (B, in) (in, out)
    dA^T += W dZ^T    backward          (in, out) (out, B)
    W    += A^T dZ    step, in place    (in, B) (B, out)

with dZ times -lr / B, so that the gradient is never stored.

`products` says how such a sum is made, and why W and Z are kept in panels as wide as a vector,
(panels, rows, LANES). The bias is one more row of W, whose input is 1.

Where all images of a batch show the background, nothing needs to be multiplied. The background u is
the value that most of an image has (0, or what normalisation made of it). With x = u 1 + v and W =
V + 1 g^T (1 is a column of ones, v zero at the background, g (out,) zero at first):

    x W = v V + sum(v) g + u (r + in g)         r = 1^T V, (out,)
    V += v^T dZ,   g += u 1^T dZ,   r += sum(v)^T dZ

is the same forward pass and the same step, of numbers most of which are zero.

Tested against the plain loop (tests/fast/test_perceptron.py).
"""

import math

import numpy as np

from fedclust.fast.compiled import compiled
from fedclust.fast.normal import fill
from fedclust.fast.products import VECTOR, VECTORS, add_product, in_panels, turn


@compiled
def train(row, shape, x, y, plan, how):
    """Train the model `row` (P,) in place, on samples x (M, in), y (M,), in steps of the positions
    plan (S, B). `shape` is (widths,), and `how` is (lr, momentum, weight_decay, prox, clip,
    expected, noise, scale).

    Negative positions fill up short batches. A sample's gradient is cut to the norm `clip`, and
    their sum is divided by `expected`, or by their number if that is 0. `noise` is the key of
    normal numbers that are added times `scale`.
    """
    (widths,), (lr, momentum, weight_decay, prox, clip, expected, _, scale) = shape, how
    real, lanes, layers = row.dtype.type, VECTOR // row.itemsize, len(widths) - 1
    plain = momentum == 0 and weight_decay == 0 and prox == 0 and scale == 0 and clip == math.inf
    u, most = background(x[max(plan[0, 0], 0)]) if plain else real(0), plan.shape[1]
    W = load(row, widths, lanes)  # (panels, in + 1, lanes)
    start = [w.copy() if prox else w for w in W]
    V = [np.zeros_like(w) if momentum else w for w in W]  # velocities
    A, dZ, dA, turned = spaces(widths, most, lanes, row)
    on = [np.arange(width + 1) for width in widths]  # A's columns
    r, above = column_sums(W[0]), np.zeros(most, row.dtype)
    g = np.zeros_like(r)
    rows, chosen = np.arange(most), np.zeros(most, np.int64)
    for s in range(len(plan)):
        n = real_ones(plan[s], chosen)
        gather(x, y, chosen[:n], u, A[0], dZ[-1], above)
        for k in range(layers):
            constant(A[k + 1], n, u if k == 0 else real(0), r, g, widths[0], above)
            forward(A[k], W[k], A[k + 1], on[k], rows[:n], k < layers - 1, widths[k + 1])
        softmax(A[-1], dZ[-1], n, widths[-1])
        for k in range(layers - 1, 0, -1):
            backward(dZ[k], turned[k], W[k], dA[k], on[k][:-1], on[k + 1], n)
            pass_back(dA[k], A[k], dZ[k - 1], n, widths[k])
        for b in range(n):
            square = 0.0
            if clip < math.inf:
                for k in range(layers):
                    square += norm2(dZ[k], b, widths[k + 1]) * norm2(A[k], b, widths[k] + 1)
            share = min(1.0, clip / math.sqrt(square)) if square > 0 else 1.0
            gain = share / (expected if expected else n) * (1.0 if momentum else -lr)
            for k in range(layers):
                stretch(dZ[k], b, real(gain))
        for k in range(layers):
            place = s * len(row) + before(widths, k)
            step(V[k], W[k], start[k], A[k], dZ[k], on[k], rows[:n], widths[k + 1], how, place)
        if u:
            drift(g, r, u, above, dZ[0], n)
    if u:
        spread(W[0], g)
    for k in range(layers):
        copy(row[before(widths, k) :], W[k], widths[k + 1], False)


@compiled
def spaces(widths, most, lanes, like):
    """For each layer's inputs (B, in + 1), dZ (B, out), dA^T (in, B) and dZ^T (out, B)."""
    across = (most + lanes - 1) // lanes * lanes
    A = [np.zeros((most, padded(width, lanes)), like.dtype) for width in widths]
    dA = [np.zeros((a.shape[1], across), like.dtype) for a in A]
    return A, [np.zeros_like(a) for a in A[1:]], dA, [np.zeros_like(a) for a in dA[1:]]


@compiled
def forward(a, w, z, used, rows, hidden, width):
    """Z += A W, and ReLU in hidden layers."""
    lanes = w.shape[2]
    add_product(in_panels(z, lanes), rows, a[: len(rows), : len(used)], w[:, :, :lanes], used)
    if hidden:
        rectify(z, len(rows), width)


@compiled
def rectify(z, n, width):
    """ReLU."""
    zero = z.dtype.type(0)
    for b in range(n):
        for o in range(width):
            z[b, o] = zero if z[b, o] < zero else z[b, o]  # not-a-numbers stay
        z[b, width] = 1  # the bias's input


@compiled
def backward(d, turned, w, above, inputs, units, n):
    """dA^T += W dZ^T"""
    lanes = w.shape[2]
    turn(d[:n], turned)
    above[:] = 0
    for p in range(len(w)):
        some = units[p * lanes : (p + 1) * lanes]
        columns = in_panels(turned, lanes)
        add_product(in_panels(above, lanes), inputs, w[p, :-1, :lanes], columns, some)


@compiled
def step(v, w, start, a, d, used, rows, n_out, how, place):
    """V <- momentum V + A^T dZ + weight_decay W + prox (W - start) + noise, W <- W - lr V; or W at
    once."""
    real, lanes, noise = w.dtype.type, w.shape[2], how[6]
    lr, momentum, weight_decay, prox = real(how[0]), real(how[1]), real(how[2]), real(how[3])
    scale, gain = real(how[7]), real(1) if momentum else -lr
    turned, deltas = a[: len(rows), : len(used)].T, in_panels(d, lanes)
    for p in range(0, len(w), VECTORS):  # what a few panels need stays in the cache meanwhile
        now = slice(p, p + VECTORS)
        if momentum or weight_decay or prox:
            keep = momentum if momentum else w.dtype.type(1)
            pull(v[now], w[now], start[now], keep, gain * weight_decay, gain * prox)
        if scale:
            jolt(v[now], p * lanes, n_out, noise, place, gain * scale)
        add_product(v[now, :, :lanes], used, turned, deltas[now], rows)
        if momentum:
            fall(w[now], v[now], lr)


@compiled
def before(widths, k):
    """How many numbers of the model come before layer k."""
    total = 0
    for j in range(k):
        total += (widths[j] + 1) * widths[j + 1]
    return total


@compiled
def padded(width, lanes):
    """Room for `width` numbers and a 1, in whole vectors."""
    return (width // lanes + 1) * lanes


@compiled
def load(row, widths, lanes):
    """The layers' weights and biases, in panels."""
    W = []
    for k in range(len(widths) - 1):
        W.append(np.empty(((widths[k + 1] + lanes - 1) // lanes, widths[k] + 1, lanes), row.dtype))
        W[k][-1] = 0  # the only panel that may not be full
        copy(row[before(widths, k) :], W[k], widths[k + 1], True)
    return W


@compiled
def copy(row, w, n_out, inward):
    """The first layer in `row`, its weight (out, in) and its bias (out,), into its panels or out of
    them."""
    lanes, n_in = w.shape[2], w.shape[1] - 1
    weight, bias = row[: n_out * n_in].reshape(n_out, n_in), row[n_out * n_in :]
    for p in range(len(w)):
        width = max(min(lanes, n_out - p * lanes), 0)
        for i in range(0, n_in, lanes):  # square by square
            one = weight[p * lanes : p * lanes + width, i : i + lanes]
            other = w[p, i : min(i + lanes, n_in), :width]
            if inward:
                turn(one, other)
            else:
                turn(other, one)
        for o in range(width):
            if inward:
                w[p, n_in, o] = bias[p * lanes + o]
            else:
                bias[p * lanes + o] = w[p, n_in, o]


@compiled
def put(values, to):
    """The first of `to`; assigning to a slice takes seconds to compile."""
    for i in range(len(values)):
        to[i] = values[i]


@compiled
def background(image):
    """The value of its corner, if most of the image has it; else 0."""
    same = 0
    for value in image:
        same += value == image[0]
    return image[0] if 2 * same > len(image) else image.dtype.type(0)


@compiled
def real_ones(positions, chosen):
    n = 0
    for i in positions:
        if i >= 0:
            chosen[n] = i
            n += 1
    return n


@compiled
def gather(x, y, chosen, u, a, onehot, above):
    """Images less the background, with their labels and sums."""
    for b, i in enumerate(chosen):
        above[b] = shown(x[i], u, a[b])
        onehot[b] = 0
        onehot[b, y[i]] = 1


@compiled
def shown(image, u, to):
    """An image's pixels, less the background, into `to`, and their sum; a 1 for the bias after
    them."""
    total = to.dtype.type(0)
    for j in range(len(image)):
        to[j] = image[j] - u
        total += to[j]
    to[len(image)] = 1
    return total


@compiled
def column_sums(w):
    """Over the inputs but the bias's: (panels, in + 1, lanes) -> (panels * lanes,)"""
    total = np.zeros(len(w) * w.shape[2], w.dtype)
    for p in range(len(w)):
        for i in range(w.shape[1] - 1):
            for o in range(w.shape[2]):
                total[p * w.shape[2] + o] += w[p, i, o]
    return total


@compiled
def constant(z, n, u, r, g, pixels, above):
    """Z = sum(v) g + u (r + in g)"""
    for b in range(n):
        if u:
            for o in range(len(g)):
                z[b, o] = u * (r[o] + pixels * g[o]) + above[b] * g[o]
        else:
            z[b] = 0


@compiled
def drift(g, r, u, above, d, n):
    for b in range(n):
        for o in range(len(g)):
            g[o] += u * d[b, o]
            r[o] += above[b] * d[b, o]


@compiled
def spread(w, g):
    """V + 1 g^T"""
    for p in range(len(w)):
        for i in range(w.shape[1] - 1):
            for o in range(w.shape[2]):
                w[p, i, o] += g[p * w.shape[2] + o]


@compiled
def pass_back(above, a, d, n, width):
    """dL/dz = dL/da where a > 0, from dA^T (in, B)"""
    zero = d.dtype.type(0)
    for b in range(n):
        for i in range(width):
            delta = above[i, b]  # in any case: a branch would be foreseen half of the time
            d[b, i] = delta if a[b, i] > zero else zero


@compiled
def softmax(z, onehot, n, classes):
    """dL/dz, in place of the labels."""
    for b in range(n):
        most, total = z[b, 0], z.dtype.type(0)
        for c in range(1, classes):
            most = max(most, z[b, c])
        for c in range(classes):
            z[b, c] = math.exp(z[b, c] - most)
            total += z[b, c]
        for c in range(classes):
            onehot[b, c] = z[b, c] / total - onehot[b, c]


@compiled
def norm2(a, b, n):
    total = 0.0
    for i in range(n):
        total += a[b, i] * a[b, i]
    return total


@compiled
def stretch(d, b, factor):
    for i in range(d.shape[1]):
        d[b, i] *= factor


@compiled
def pull(v, w, start, keep, decay, prox):
    """v <- keep v + decay w + prox (w - start)"""
    v, w, start = v.ravel(), w.ravel(), start.ravel()
    for i in range(len(v)):
        v[i] = keep * v[i] + decay * w[i] + prox * (w[i] - start[i])


@compiled
def fall(w, v, lr):
    w, v = w.ravel(), v.ravel()
    for i in range(len(w)):
        w[i] -= lr * v[i]


@compiled
def jolt(v, unit, n_out, key, place, scale):
    """Adds normal numbers to the panels of the units from `unit` on: a layer's first is number
    `place`, in the order of the layer's numbers in a row."""
    lanes, n_in = v.shape[2], v.shape[1] - 1
    e, bias = np.empty((lanes, n_in), np.float32), np.empty(lanes, np.float32)
    for p in range(len(v)):
        first = unit + p * lanes
        units = max(min(lanes, n_out - first), 0)
        for o in range(units):
            fill(e[o], key, place + (first + o) * n_in)
        fill(bias[:units], key, place + n_out * n_in + first)
        for i in range(n_in):
            for o in range(units):
                v[p, i, o] += scale * v.dtype.type(e[o, i])
        for o in range(units):
            v[p, n_in, o] += scale * v.dtype.type(bias[o])
