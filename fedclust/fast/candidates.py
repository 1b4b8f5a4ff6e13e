"""Perceptrons that clients share: every client's batch under each of K models, compiled, on the
sums of `perceptron`.

Nothing is multiplied where the images show the background u, or where a unit is shut (`sparse`).
With x = u 1 + v, v zero at the background, and the sums over all pixels, the first layer's outputs
and the gradient G of its weights are

    x W = v W + u r                              r = 1^T W, (out,)
    G = v^T dZ + u 1 s^T                         s = sum of dZ over the batch, (out,)
    <G, D> = <dZ, x D>                           |G|^2 = <dZ, (x x^T) dZ>

so that the gradient of a (client, model) pair is never made to be looked at.

Where the largest cosine is sought, not even that is done for most pairs. The columns of a direction
D of the first layer lie almost in the span of a few, P (out, r). For orthonormal P (Cauchy and
Schwarz),

    |<G, D> - <P^T G, P^T D>| <= sqrt(|G|^2 - |P^T G|^2) |D - P P^T D|,     P^T G = (dZ P)^T x,

and r is as little as a vector's lanes.
"""

import math

import numpy as np

from fedclust.fast.compiled import compiled
from fedclust.fast.perceptron import (
    background,
    before,
    column_sums,
    copy,
    load,
    padded,
    put,
    rectify,
    softmax,
    spaces,
    spread,
    stretch,
)
from fedclust.fast.products import FEW, ROWS, VECTOR, add_product, in_panels, look_at_product, turn
from fedclust.fast.sparse import (
    bits,
    by_groups,
    groups,
    multiply,
    multiply_turned,
    parts,
    side_by_side,
    unite,
)

ROUNDING = 1e-3  # of a cosine, and more
TOGETHER = 64  # samples in a prediction
BLOCK = 2 * ROWS  # samples in a piece of the triangle below a diagonal


@compiled
def decide(
    rows,
    towards,
    onto,
    within,
    beyond,
    widths,
    x,
    y,
    mask,
    margin,
    sign,
    loss,
    dot,
    square,
    outputs,
    likely,
):
    """`choice.of_perceptrons` for models (K, P), directions (K, P) or none, batches (N, B, in), (N,
    B), (N, B), margins (N,); loss, dot, square (N, K) are filled, and likely (N,), the models that
    win, with their hidden layers' outputs.

    With a `sign`, models are looked at roughly first (`onto`, `within`, `beyond` are
    `choice.subspaces`), and if more than one can win then exactly, the most promising before the
    others. The others' dot is what it can be at most.
    """
    real, lanes, layers, models, most = (
        rows.dtype.type,
        VECTOR // rows.itemsize,
        len(widths) - 1,
        len(rows),
        x.shape[1],
    )
    W, D = (
        all_panels(rows, widths, lanes),
        all_panels(towards, widths, lanes),
    )  # model j's layer k: W[j * layers + k]
    A = [
        a for _ in rows for a in spaces(widths, most, lanes, rows)[0]
    ]  # ... A[j * (layers + 1) + k]
    dZ = [d for _ in rows for d in spaces(widths, most, lanes, rows)[1]]
    T, few = all_turned(rows, widths, lanes), np.zeros((most, lanes), rows.dtype)
    images, columns = by_images(most, widths, rows), by_columns(most, widths)
    (across, alike), seen = by_pairs(most, widths[0], lanes, rows), np.zeros((2, lanes), rows.dtype)
    r, r_towards = (
        [column_sums(W[j * layers]) for j in range(models)],
        [column_sums(d) for d in D[::layers]],
    )
    r_within = [column_sums(within[j : j + 1]) for j in range(len(within))]
    lengths, chosen = (
        [math.sqrt(norm2(towards[j])) for j in range(len(towards))],
        np.zeros(most, np.int64),
    )
    others, promise = np.zeros(models), np.zeros(models)
    for i in range(len(x)):
        n = real_ones(mask[i], chosen)
        u = background(x[i, chosen[0]])
        lay_out(x[i], chosen[:n], u, images)
        for j in range(models):
            mine, top = A[j * (layers + 1) :], A[j * (layers + 1) + layers]
            predict_batch(images, n, u, r[j], W[j * layers :], mine, widths, 0)
            loss[i, j] = mean_loss(top, y[i], chosen[:n], widths[-1])
        ranks, rough, half = (
            ascending(loss[i]),
            sign != 0 and margin[i] < math.inf,
            margin[i] / real(2),
        )
        reach, likely[i] = loss[i, ranks[0]] + margin[i], ranks[0]
        if len(towards) == 0 or models == 1 or not loss[i, ranks[1]] <= reach:
            keep(A[likely[i] * (layers + 1) :], widths, outputs[i])
            continue
        compare(images, n, u, widths[0], across, alike)
        promise[:], best = math.inf, math.inf
        for j in ranks:
            if not loss[i, j] <= reach:
                break
            mine, d, delta = A[j * (layers + 1) :], D[j * layers :], dZ[j * layers :]
            deltas(mine, T[j * layers :], y[i], chosen[:n], widths, images[2], delta, 1.0 / n)
            seen[:] = 0
            for k in range(1, layers):
                to, inputs, lines = d[k][:, :, :lanes], mine[k][:n], images[2][k]
                multiply_turned(to, inputs, widths[k] + 1, delta[k], lines, columns[k], seen)
            others[j], square[i, j] = seen[0].sum(), seen[1].sum()
            size = length2(delta[0], alike, n, seen)
            square[i, j] += size
            promise[j] = loss[i, j]
            if rough:
                few[:n] = 0
                units, basis = np.arange(widths[1]), onto[j : j + 1, :, :lanes]
                add_product(
                    in_panels(few, lanes), np.arange(n), delta[0][:n, : widths[1]], basis, units
                )  # dZ P
                along = others[j] + product(few, images, n, within[j : j + 1], u, r_within[j], seen)
                around = math.sqrt(max(size - length2(few, alike, n, seen), 0.0)) * beyond[j]
                dot[i, j] = along + sign * around
                promise[j] -= half * (cosine(sign * dot[i, j], square[i, j], lengths[j]) + ROUNDING)
                least = cosine(sign * along - around, square[i, j], lengths[j])
                best = min(best, loss[i, j] - half * (least - ROUNDING))
                reach = min(reach, best + half)
        ranks, alone = ascending(promise), rough and np.sum(promise <= best) == 1
        likely[i] = ranks[0]
        for j in ranks:
            if promise[j] > best or promise[j] == math.inf or alone:
                break
            first, delta = D[j * layers], dZ[j * layers]
            dot[i, j] = others[j] + product(delta, images, n, first, u, r_towards[j], seen)
            if rough:
                found = loss[i, j] - half * cosine(sign * dot[i, j], square[i, j], lengths[j])
                if found <= best:
                    best, likely[i] = found, j
        keep(A[likely[i] * (layers + 1) :], widths, outputs[i])


@compiled
def mean_step(row, widths, x, y, mask, members, known, outputs, lr, out):
    """Into `out`, the mean over these members' batches of their models one step from `row` (P,). Of
    those that are `known` (N,), `outputs` holds what the hidden layers made."""
    real, lanes, layers, most = row.dtype.type, VECTOR // row.itemsize, len(widths) - 1, x.shape[1]
    W, A = load(row, widths, lanes), spaces(widths, most, lanes, row)[0]
    T, dZ = turned_over(row, widths, lanes), spaces(widths, most, lanes, row)[1]
    ends, kept = [w.copy() for w in W], A[:]
    images, columns = by_images(most, widths, row), by_columns(most, widths)
    chosen, none = np.zeros(most, np.int64), np.zeros((0, lanes), row.dtype)
    r, drift = column_sums(W[0]), np.zeros(dZ[0].shape[1], row.dtype)
    for i in members:
        n = real_ones(mask[i], chosen)
        u = background(x[i, chosen[0]])
        lay_out(x[i], chosen[:n], u, images)
        if known[i]:
            recall(outputs[i], widths, most, kept)
        a = kept if known[i] else A
        predict_batch(images, n, u, r, W, a, widths, layers - 1 if known[i] else 0)
        deltas(a, T, y[i], chosen[:n], widths, images[2], dZ, -lr / n / len(members))
        for k in range(layers):
            to, inputs, lines = (
                ends[k][:, :, :lanes],
                a[k][:n] if k else images[0][:n],
                images[2][k],
            )
            multiply_turned(to, inputs, widths[k] + 1, dZ[k], lines, columns[k], none)
        first = dZ[0]
        for b in range(n):
            for o in range(len(drift)):
                drift[o] += real(u) * first[b, o]
    spread(ends[0], drift)
    for k in range(layers):
        copy(out[before(widths, k) :], ends[k], widths[k + 1], False)


@compiled
def predict(row, shape, x, out):
    """Logits of samples x (B, in) into out (B, classes)."""
    (widths,) = shape
    lanes, layers = VECTOR // row.itemsize, len(widths) - 1
    W, A = load(row, widths, lanes), spaces(widths, TOGETHER, lanes, row)[0]
    images, r, u = by_images(TOGETHER, widths, row), column_sums(W[0]), background(x[0])
    chosen = np.arange(TOGETHER)
    for low in range(0, len(x), TOGETHER):
        n = min(TOGETHER, len(x) - low)
        lay_out(x[low : low + n], chosen[:n], u, images)
        predict_batch(images, n, u, r, W, A, widths, 0)
        for b in range(n):
            put(A[layers][b, : widths[-1]], out[low + b])


@compiled
def all_panels(rows, widths, lanes):
    return [w for j in range(len(rows)) for w in load(rows[j], widths, lanes)]


@compiled
def all_turned(rows, widths, lanes):
    return [w for j in range(len(rows)) for w in turned_over(rows[j], widths, lanes)]


@compiled
def turned_over(row, widths, lanes):
    """W^T of each layer but the first in panels, (panels, out, lanes): those of its inputs."""
    found = [np.zeros((0, 0, lanes), row.dtype)]
    for k in range(1, len(widths) - 1):
        n_in, n_out = widths[k], widths[k + 1]
        flat = np.zeros((n_out, parts(n_in, lanes) * lanes), row.dtype)
        weight = row[before(widths, k) :]
        for o in range(n_out):
            put(weight[o * n_in : (o + 1) * n_in], flat[o])
        found.append(in_panels(flat, lanes).copy())
    return found


@compiled
def real_ones(mask, chosen):
    n = 0
    for i in range(len(mask)):
        chosen[n] = i
        n += mask[i]
    return n


@compiled
def by_images(most, widths, like):
    """Room for a batch: its images without background, their sums, and each layer's inputs in
    groups, in one order."""
    values, order = (
        np.zeros((most, padded(widths[0], VECTOR // like.itemsize)), like.dtype),
        np.arange(most),
    )
    values[:, widths[0]] = 1
    return values, np.zeros(most, like.dtype), [groups(width + 1, order, FEW) for width in widths]


@compiled
def by_columns(most, widths):
    """Room for the columns of each layer's inputs in groups."""
    return [groups(most, np.arange(widths[k] + 1), 1 if k else FEW) for k in range(len(widths))]


@compiled
def by_pairs(most, n_in, lanes, like):
    """Room for the images side by side, in panels, and for their products."""
    panels = parts(most, lanes)
    return np.zeros((panels, padded(n_in, lanes), lanes), like.dtype), np.zeros(
        (most, panels * lanes), like.dtype
    )


@compiled
def lay_out(x, chosen, u, images):
    (values, above, lines), n = images, len(chosen)
    for b in range(n):
        image, line, total = x[chosen[b]], values[b], x.dtype.type(0)
        for j in range(len(image)):
            line[j] = image[j] - u
            total += line[j]
        above[b] = total
    alive, order, _, _ = lines[0]
    bits(values[:n], x.shape[1] + 1, alive)
    side_by_side(alive[:n], order)
    unite(n, lines[0])


@compiled
def keep(A, widths, outputs):
    """The hidden layers' outputs, A[1], A[2], ..., one after the other, if there is room."""
    low = 0
    for k in range(1, len(widths) - 1 if len(outputs) else 0):
        put(A[k].ravel(), outputs[low:])
        low += A[k].size


@compiled
def recall(outputs, widths, most, A):
    """Those outputs as A[1], A[2], ..., where they were kept."""
    low, lanes = 0, VECTOR // outputs.itemsize
    for k in range(1, len(widths) - 1):
        wide = padded(widths[k], lanes)
        A[k] = outputs[low : low + most * wide].reshape(most, wide)
        low += most * wide


@compiled
def predict_batch(images, n, u, r, W, A, widths, first):
    """The outputs of all layers from the `first` on, into A[first + 1], ..."""
    lanes, layers, (values, _, lines) = W[0].shape[2], len(widths) - 1, images
    for k in range(first, layers):
        z, w = A[k + 1], W[k]
        into = in_panels(z, lanes)
        if k == 0:
            for b in range(n):
                for o in range(len(r)):
                    z[b, o] = u * r[o]
            by_groups(
                into,
                values[:, : widths[0] + 1],
                w[:, :, :lanes],
                lines[0],
                np.zeros((0, lanes), z.dtype),
            )
        else:
            z[:n] = 0
            multiply(into, A[k][:n], widths[k] + 1, w[:, :, :lanes], lines[k])
        if k < layers - 1:
            rectify(z, n, widths[k + 1])


@compiled
def deltas(A, T, y, chosen, widths, lines, dZ, share):
    """dL/dz of every layer, into dZ, for the loss times `share`, from the weights turned over. The
    logits are lost."""
    n, layers, lanes, real = len(chosen), len(widths) - 1, T[0].shape[2], T[0].dtype.type
    for b in range(n):
        dZ[layers - 1][b] = 0
        dZ[layers - 1][b, y[chosen[b]]] = 1
    softmax(A[layers], dZ[layers - 1], n, widths[-1])
    for b in range(n):
        stretch(dZ[layers - 1], b, real(share))
    for k in range(layers - 1, 0, -1):
        below, above = in_panels(dZ[k - 1], lanes), dZ[k][:n]
        dZ[k - 1][:n] = 0
        multiply(below, above, widths[k + 1], T[k][:, :, :lanes], lines[k + 1])
        stop(dZ[k - 1], A[k], n, widths[k])


@compiled
def stop(d, a, n, width):
    """dL/dz = dL/da where a > 0"""
    zero = d.dtype.type(0)
    for b in range(n):
        for o in range(width):
            d[b, o] = d[b, o] if a[b, o] > zero else zero


@compiled
def product(d, images, n, b, u, r, seen):
    """<x^T d, b> = <d, x b> of the first layer."""
    (values, _, lines), more = images, 0.0
    seen[:] = 0
    wide, lanes = b.shape[1:]
    by_groups(in_panels(d, lanes), values[:, :wide], b[:, :, :lanes], lines[0], seen)
    for i in range(n if u else 0):
        for o in range(len(r)):
            more += d[i, o] * r[o]
    return seen[0].sum() + u * more


@compiled
def length2(d, alike, n, seen):
    """|x^T d|^2 = <d, (x x^T) d>"""
    deltas, to, seen[:] = in_panels(d, seen.shape[1]), np.arange(n), 0
    for low in range(0, n, BLOCK):
        high = min(low + BLOCK, n)
        look_at_product(deltas, to[low:high], alike[low:high, :high], deltas, to[:high], seen)
    return 2 * seen[0].sum()


@compiled
def compare(images, n, u, n_in, across, alike):
    """alike + alike^T = x x^T of the chosen images with a 1 each, (n, n), with zeros above the
    diagonal."""
    (values, above, lines), lanes = images, across.shape[2]
    for p in range(parts(n, lanes)):
        for i in range(0, across.shape[1], lanes):
            turn(values[p * lanes : (p + 1) * lanes, i : i + lanes], across[p, i : i + lanes])
    for a in range(n):
        for b in range(n):
            alike[a, b] = u * (above[a] + above[b] + n_in * u)
    wide, none = n_in + 1, np.zeros((0, lanes), across.dtype)
    by_groups(in_panels(alike, lanes), values[:, :wide], across[:, :wide, :lanes], lines[0], none)
    for a in range(n):
        alike[a, a] /= 2
        alike[a, a + 1 :] = 0


@compiled
def cosine(dot, square, length):
    norms = math.sqrt(max(square, 0.0)) * length
    return dot / norms if norms > 0 else 0.0


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
