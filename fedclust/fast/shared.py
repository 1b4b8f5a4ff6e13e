"""Perceptrons that clients share: every client's batch under each of K models, compiled, on the sums of `perceptron`.

A batch is laid out once for all models, so that nothing is multiplied where its images show the background u. With
x = u 1 + v, a few images at a time go forward by the pixels where one of them has v != 0, and a few pixels at a time
gather their part of a gradient G from the images where one of them has. With the sums over all pixels that is

    x W = v W + u r                              r = 1^T W, (out,)
    G = v^T dZ + u 1 s^T                         s = sum of dZ over the batch, (out,)
    <G, D> = <dZ, x D>                           |G|^2 = <dZ, (x x^T) dZ>

so that the gradient of a (client, model) pair is never made to be looked at.

Where the largest cosine is sought, not even that is done for most pairs. The columns of a direction D of the first
layer lie almost in the span of a few, P (out, r). For orthonormal P (Cauchy and Schwarz),

    |<G, D> - <P^T G, P^T D>| <= sqrt(|G|^2 - |P^T G|^2) |D - P P^T D|,     P^T G = (dZ P)^T x,

and r is as little as a vector's lanes.
"""

import math

import numpy as np

from fedclust.fast.compiled import compiled
from fedclust.fast.perceptron import (
    ROWS,
    VECTOR,
    VECTORS,
    add_product,
    background,
    before,
    column_sums,
    copy,
    in_panels,
    load,
    look_at_product,
    padded,
    put,
    rectify,
    shown,
    softmax,
    spaces,
    spread,
    stretch,
    visible,
)

ROUNDING = 1e-3  # of a cosine, and more
TOGETHER = 6 * ROWS  # samples in a prediction
BLOCK = 2 * ROWS  # samples in a piece of the triangle below a diagonal


@compiled
def decide(rows, towards, onto, within, beyond, widths, x, y, mask, margin, sign, loss, dot, square, outputs, likely):
    """`decision.decisions` for models (K, P), directions (K, P) or none, batches (N, B, in), (N, B), (N, B), margins
    (N,); loss, dot, square (N, K) are filled, and likely (N,), the models that win, with their hidden layers' outputs.

    With a `sign`, models are looked at roughly first (`onto`, `within`, `beyond` are `decision.subspaces`), and if more
    than one can win then exactly, the most promising before the others. The others' dot is what it can be at most.
    """
    real, lanes, layers, models, most = rows.dtype.type, VECTOR // rows.itemsize, len(widths) - 1, len(rows), x.shape[1]
    W, D = all_panels(rows, widths, lanes), all_panels(towards, widths, lanes)  # model j's layer k: W[j * layers + k]
    A = [a for _ in rows for a in spaces(widths, most, lanes, rows)[0]]  # ... A[j * (layers + 1) + k]
    dZ = [d for _ in rows for d in spaces(widths, most, lanes, rows)[1]]
    T, few = all_turned(rows, widths, lanes), np.zeros((most, lanes), rows.dtype)
    images, (across, alike) = by_images(most, widths[0], rows), by_pairs(most, widths[0], lanes, rows)
    seen, all_rows = np.zeros((2, lanes), rows.dtype), np.arange(widths.max() + most + 1)
    r, r_towards = [column_sums(W[j * layers]) for j in range(models)], [column_sums(d) for d in D[::layers]]
    r_within = [column_sums(within[j : j + 1]) for j in range(len(within))]
    lengths, chosen = [math.sqrt(norm2(towards[j])) for j in range(len(towards))], np.zeros(most, np.int64)
    others, promise = np.zeros(models), np.zeros(models)
    for i in range(len(x)):
        n = by_label(y[i], mask[i], widths[-1], chosen)
        u = background(x[i, chosen[0]])
        lay_out(x[i], chosen[:n], u, images)
        for j in range(models):
            mine, top = A[j * (layers + 1) :], A[j * (layers + 1) + layers]
            predict_batch(images, n, u, r[j], W[j * layers :], mine, widths, all_rows, 0)
            loss[i, j] = mean_loss(top, y[i], chosen[:n], widths[-1])
        order, rough, half = ascending(loss[i]), sign != 0 and margin[i] < math.inf, margin[i] / real(2)
        reach, likely[i] = loss[i, order[0]] + margin[i], order[0]
        if len(towards) == 0 or models == 1 or not loss[i, order[1]] <= reach:
            keep(A[likely[i] * (layers + 1) :], widths, outputs[i])
            continue
        compare(x[i], chosen[:n], u, images, across, alike, all_rows)
        promise[:], best = math.inf, math.inf
        for j in order:
            if not loss[i, j] <= reach:
                break
            mine, d, delta = A[j * (layers + 1) :], D[j * layers :], dZ[j * layers :]
            deltas(mine, T[j * layers :], y[i], chosen[:n], widths, all_rows, delta, 1.0 / n)
            seen[:] = 0
            for k in range(1, layers):
                inputs, to = mine[k][:n, : widths[k] + 1].T, all_rows[: widths[k] + 1]
                look_at_product(d[k][:, :, :lanes], to, inputs, in_panels(delta[k], lanes), all_rows[:n], seen)
            others[j], square[i, j] = seen[0].sum(), seen[1].sum()
            size = length2(delta[0], alike, n, all_rows, seen)
            square[i, j] += size
            promise[j] = loss[i, j]
            if rough:
                few[:n] = 0
                units, basis = all_rows[: widths[1]], onto[j : j + 1, :, :lanes]
                add_product(in_panels(few, lanes), all_rows[:n], delta[0][:n, : widths[1]], basis, units)  # dZ P
                along = others[j] + product(few, images, n, within[j : j + 1], u, r_within[j], all_rows, seen)
                around = math.sqrt(max(size - length2(few, alike, n, all_rows, seen), 0.0)) * beyond[j]
                dot[i, j] = along + sign * around
                promise[j] -= half * (cosine(sign * dot[i, j], square[i, j], lengths[j]) + ROUNDING)
                least = cosine(sign * along - around, square[i, j], lengths[j])
                best = min(best, loss[i, j] - half * (least - ROUNDING))
                reach = min(reach, best + half)
        order, alone = ascending(promise), rough and np.sum(promise <= best) == 1
        likely[i] = order[0]
        for j in order:
            if promise[j] > best or promise[j] == math.inf or alone:
                break
            first, delta = D[j * layers], dZ[j * layers]
            dot[i, j] = others[j] + product(delta, images, n, first, u, r_towards[j], all_rows, seen)
            if rough:
                found = loss[i, j] - half * cosine(sign * dot[i, j], square[i, j], lengths[j])
                if found <= best:
                    best, likely[i] = found, j
        keep(A[likely[i] * (layers + 1) :], widths, outputs[i])


@compiled
def mean_step(row, widths, x, y, mask, members, known, outputs, lr, out):
    """Into `out`, the mean over these members' batches of their models one step from `row` (P,). Of those that are
    `known` (N,), `outputs` holds what the hidden layers made."""
    real, lanes, layers, most = row.dtype.type, VECTOR // row.itemsize, len(widths) - 1, x.shape[1]
    W, A = load(row, widths, lanes), spaces(widths, most, lanes, row)[0]
    T, dZ = turned_over(row, widths, lanes), spaces(widths, most, lanes, row)[1]
    ends, kept = [w.copy() for w in W], A[:]
    images, pixels = by_images(most, widths[0], row), by_pixels(most, widths[0], row)
    all_rows, chosen = np.arange(widths.max() + most + 1), np.zeros(most, np.int64)
    r, drift = column_sums(W[0]), np.zeros(dZ[0].shape[1], row.dtype)
    for i in members:
        n = by_label(y[i], mask[i], widths[-1], chosen)
        u = background(x[i, chosen[0]])
        if known[i]:
            recall(outputs[i], widths, most, kept)
            predict_batch(images, n, u, r, W, kept, widths, all_rows, layers - 1)
        else:
            lay_out(x[i], chosen[:n], u, images)
            predict_batch(images, n, u, r, W, A, widths, all_rows, 0)
        a = kept if known[i] else A
        deltas(a, T, y[i], chosen[:n], widths, all_rows, dZ, -lr / n / len(members))
        used = turn_over(x[i], chosen[:n], u, pixels)
        by_parts(ends[0], pixels, used, dZ[0])
        for k in range(1, layers):
            inputs = a[k][:n, : widths[k] + 1].T
            into = ends[k][:, :, :lanes]
            add_product(into, all_rows[: widths[k] + 1], inputs, in_panels(dZ[k], lanes), all_rows[:n])
        first = dZ[0]
        for b in range(n):
            for o in range(len(drift)):
                drift[o] += real(u) * first[b, o]
    spread(ends[0], drift)
    for k in range(layers):
        copy(out[before(widths, k) :], ends[k], widths[k + 1], False)


@compiled
def predict(row, widths, x, out):
    """Logits of samples x (B, in) into out (B, classes)."""
    lanes, layers = VECTOR // row.itemsize, len(widths) - 1
    W, A = load(row, widths, lanes), spaces(widths, TOGETHER, lanes, row)[0]
    images, r, u = by_images(TOGETHER, widths[0], row), column_sums(W[0]), background(x[0])
    all_rows = np.arange(widths.max() + TOGETHER + 1)
    for low in range(0, len(x), TOGETHER):
        n = min(TOGETHER, len(x) - low)
        lay_out(x[low : low + n], all_rows[:n], u, images)
        predict_batch(images, n, u, r, W, A, widths, all_rows, 0)
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
def by_label(y, mask, classes, chosen):
    """The real samples, those of a class side by side: their images are alike. How many there are."""
    n = 0
    for label in range(classes):
        for i in range(len(y)):
            if mask[i] and y[i] == label:
                chosen[n] = i
                n += 1
    return n


@compiled
def parts(n, size):
    return (n + size - 1) // size


@compiled
def by_images(most, n_in, like):
    """Room for the visible pixels of a few images at a time: values, which, how many; what is seen; sums."""
    values = np.zeros((parts(most, ROWS), ROWS, n_in + 1), like.dtype)
    which = np.zeros((parts(most, ROWS), n_in + 1), np.int64)
    return values, which, np.zeros(parts(most, ROWS), np.int64), np.zeros(n_in, np.bool_), np.zeros(most, like.dtype)


@compiled
def by_pixels(most, n_in, like):
    """Room for the images that a few pixels at a time are visible in: values, which, how many; which pixels."""
    many = parts(n_in + 1, ROWS)
    values, which = np.zeros((many, ROWS, most), like.dtype), np.zeros((many, most), np.int64)
    return values, which, np.zeros(many, np.int64), np.zeros(n_in + 1, np.int64), np.zeros(n_in, np.bool_)


@compiled
def by_pairs(most, n_in, lanes, like):
    """Room for the images side by side, in panels, and for their products."""
    panels = parts(most, lanes)
    return np.zeros((panels, n_in + 1, lanes), like.dtype), np.zeros((most, panels * lanes), like.dtype)


@compiled
def lay_out(x, chosen, u, images):
    values, which, many, seen, above = images
    n, groups = len(chosen), parts(len(chosen), ROWS)
    for g in range(groups):
        low, high = n * g // groups, n * (g + 1) // groups
        many[g] = visible(x, chosen[low:high], u, seen, which[g])
        for b in range(low, high):
            above[b] = shown(x[chosen[b]], which[g, : many[g]], u, values[g, b - low])


@compiled
def turn_over(x, chosen, u, pixels):
    """The same batch by pixels. How many of these are used, the bias's 1 being the last."""
    values, which, many, on, seen = pixels
    used, n = visible(x, chosen, u, seen, on), len(chosen)
    groups, lines, there = parts(used, ROWS), np.empty((ROWS, n), x.dtype), np.empty(n, np.int64)
    for g in range(groups):
        low, high, found = used * g // groups, used * (g + 1) // groups, 0
        there[:] = 0
        for j in range(low, high):
            line = lines[j - low]
            for b in range(n):
                line[b] = x[chosen[b], on[j]] - u if j < used - 1 else 1
            for b in range(n):
                there[b] |= line[b] != 0
        for b in range(n):  # no branch, which nobody could foresee
            which[g, found] = b
            found += there[b]
        for j in range(high - low):
            for b in range(found):
                values[g, j, b] = lines[j, which[g, b]]
        many[g] = found
    return used


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
def predict_batch(images, n, u, r, W, A, widths, all_rows, first):
    """The outputs of all layers from the `first` on, into A[first + 1], ..."""
    lanes, layers = W[0].shape[2], len(widths) - 1
    for k in range(first, layers):
        z, w = A[k + 1], W[k]
        into = in_panels(z, lanes)
        if k == 0:
            for b in range(n):
                for o in range(len(r)):
                    z[b, o] = u * r[o]
            by_groups(into, images, n, w, all_rows, np.zeros((0, lanes), z.dtype))
        else:
            z[:n] = 0
            add_product(into, all_rows[:n], A[k][:n, : widths[k] + 1], w[:, :, :lanes], all_rows[: widths[k] + 1])
        if k < layers - 1:
            rectify(z, n, widths[k + 1])


@compiled
def by_groups(c, images, n, b, all_rows, seen):
    """c += v b, or, if there is room in `seen`, what v b is to c."""
    values, which, many, _, _ = images
    lanes, groups = b.shape[2], parts(n, ROWS)
    for p in range(0, len(b), VECTORS):  # these panels stay in the cache while all images pass
        into, now = c[p : p + VECTORS], b[p : p + VECTORS, :, :lanes]
        for g in range(groups):
            to, of = all_rows[n * g // groups : n * (g + 1) // groups], which[g, : many[g]]
            group = values[g, : len(to), : many[g]]
            if len(seen):
                look_at_product(into, to, group, now, of, seen)
            else:
                add_product(into, to, group, now, of)


@compiled
def deltas(A, T, y, chosen, widths, all_rows, dZ, share):
    """dL/dz of every layer, into dZ, for the loss times `share`, from the weights turned over. The logits are lost."""
    n, layers, lanes, real = len(chosen), len(widths) - 1, T[0].shape[2], T[0].dtype.type
    for b in range(n):
        dZ[layers - 1][b] = 0
        dZ[layers - 1][b, y[chosen[b]]] = 1
    softmax(A[layers], dZ[layers - 1], n, widths[-1])
    for b in range(n):
        stretch(dZ[layers - 1], b, real(share))
    for k in range(layers - 1, 0, -1):
        below, above = in_panels(dZ[k - 1], lanes), dZ[k][:n, : widths[k + 1]]
        dZ[k - 1][:n] = 0
        add_product(below, all_rows[:n], above, T[k][:, :, :lanes], all_rows[: widths[k + 1]])
        stop(dZ[k - 1], A[k], n, widths[k])


@compiled
def stop(d, a, n, width):
    """dL/dz = dL/da where a > 0"""
    zero = d.dtype.type(0)
    for b in range(n):
        for o in range(width):
            d[b, o] = d[b, o] if a[b, o] > zero else zero


@compiled
def by_parts(c, pixels, used, d):
    """c += v^T dZ"""
    values, which, many, on, _ = pixels
    lanes, groups = c.shape[2], parts(used, ROWS)
    deltas = in_panels(d, lanes)
    for p in range(0, len(c), VECTORS):  # these panels of dZ stay in the cache while all pixels pass
        into, now = c[p : p + VECTORS, :, :lanes], deltas[p : p + VECTORS]
        for g in range(groups):
            low, high = used * g // groups, used * (g + 1) // groups
            turned, of = values[g, : high - low, : many[g]], which[g, : many[g]]
            add_product(into, on[low:high], turned, now, of)


@compiled
def product(d, images, n, b, u, r, all_rows, seen):
    """<x^T d, b> = <d, x b> of the first layer."""
    seen[:], more = 0, 0.0
    by_groups(in_panels(d, b.shape[2]), images, n, b, all_rows, seen)
    for i in range(n if u else 0):
        for o in range(len(r)):
            more += d[i, o] * r[o]
    return seen[0].sum() + u * more


@compiled
def length2(d, alike, n, all_rows, seen):
    """|x^T d|^2 = <d, (x x^T) d>"""
    deltas, seen[:] = in_panels(d, seen.shape[1]), 0
    for low in range(0, n, BLOCK):
        high = min(low + BLOCK, n)
        look_at_product(deltas, all_rows[low:high], alike[low:high, :high], deltas, all_rows[:high], seen)
    return 2 * seen[0].sum()


@compiled
def compare(x, chosen, u, images, across, alike, all_rows):
    """alike + alike^T = x x^T of the chosen images with a 1 each, (n, n), with zeros above the diagonal."""
    values, which, many, _, above = images
    n, groups, lanes, n_in = len(chosen), parts(len(chosen), ROWS), across.shape[2], x.shape[1]
    for p in range(parts(n, lanes)):
        some = chosen[p * lanes : (p + 1) * lanes]
        for i in range(n_in):
            for b in range(len(some)):
                across[p, i, b] = x[some[b], i] - u
        across[p, n_in] = 1
    for a in range(n):
        for b in range(n):
            alike[a, b] = u * (above[a] + above[b] + n_in * u)
    for g in range(groups):
        to, of = all_rows[n * g // groups : n * (g + 1) // groups], which[g, : many[g]]
        left = parts(n * (g + 1) // groups, lanes)  # panels up to the diagonal
        add_product(in_panels(alike, lanes)[:left], to, values[g, : len(to), : many[g]], across[:left, :, :lanes], of)
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
