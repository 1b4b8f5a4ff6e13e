"""Joint's decisions: no more products and gradients than the largest score needs.

With lambda * S - (1 - lambda) * L and a cosine S between -1 and 1, a model whose loss is more than
2 lambda / (1 - lambda) above the least is never picked. For the others of a client, perceptrons go
through `candidates`, which also bounds the cosine; convolutional networks have their gradients
made, in the order of their losses, until no other can win. Values that were not needed are zero,
or, of a product, a bound that is sufficient to see who wins.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from fedclust.algorithms.ifca import Batch
from fedclust.algorithms.joint import Joint, Seen
from fedclust.fast import candidates
from fedclust.fast.compiled import on_threads
from fedclust.fast.products import VECTOR
from fedclust.fast.training import geometry
from fedclust.models import Model
from fedclust.rng import stream

Passes = tuple[
    Tensor, Tensor
]  # hidden layers' outputs of clients' batches (N, units), of which model
SLACK = 1e-5  # of a squared length, and more: what rounding may take from it


def choose(method: Joint, rows: Tensor, directions: Tensor | None, batch: Batch) -> Seen:
    """What `Joint.look` gives, as far as it matters for the largest score."""
    model, toward = method.train.model, -1 if method.sign == "descent" else 1
    prepared = plain(model, rows, batch)
    limit = margin(method, batch[2].sum(1, keepdim=True))
    if model.blocks:
        seen = with_blocks(model, rows, directions, prepared, limit, toward)
        return Seen(*seen, lambda labels, lr: step_with_blocks(model, rows, prepared, labels, lr))
    passes = room(model, rows, batch[1])
    seen = of_perceptrons(model, rows, directions, prepared, limit, toward, passes)
    return Seen(*seen, lambda labels, lr: step(model, rows, prepared, labels, lr, passes))


def margin(method: Joint, count: Tensor) -> Tensor:
    """How much more mean loss than the least no cosine can outweigh, and a little, (N, 1)."""
    if method.similarity != "cosine" or method.lam == 1:
        return torch.full_like(count, torch.inf, dtype=torch.float)
    samples = count if method.loss == "sum" else torch.ones_like(count)
    return 2.001 * method.lam / (1 - method.lam) / samples + 1e-4


def plain(model: Model, rows: Tensor, batch: Batch) -> Batch:
    """Batches as compiled code takes them; images and labels are checked, since it does not."""
    x, y, mask = batch
    model.check(x.flatten(0, 1), y[mask])
    return x.flatten(2).to(rows).contiguous(), y.contiguous(), mask.contiguous()


# ---- perceptrons


def room(model: Model, rows: Tensor, y: Tensor) -> Passes:
    """For what the hidden layers make of batches with labels y (N, B)."""
    widths = geometry(model)[0][1:-1].tolist()
    units = sum(candidates.padded(width, VECTOR // rows.itemsize) for width in widths)
    return rows.new_empty(len(y), y.shape[1] * units), torch.full((len(y),), -1)


def of_perceptrons(
    model: Model,
    rows: Tensor,
    directions: Tensor | None,
    batch: Batch,
    margin: Tensor,
    sign: int,
    passes: Passes,
) -> tuple[Tensor, Tensor, Tensor]:
    """loss, <gradient, direction> and |gradient|, (N, K) each; an equal share of the clients on
    each of PyTorch's threads.

    With a `sign` the largest margin / 2 * cosine - loss is sought, with the cosine of sign *
    gradient and direction. What the model that has it made of the client's batch is left in
    `passes`.
    """
    n = len(batch[0])
    out, limit = rows.new_zeros(3, n, len(rows)), margin.to(rows).expand(n, 1)[:, 0].contiguous()
    given = (*batch, limit, *out, *passes)
    towards = rows[:0] if directions is None else directions
    about = rows, towards, *subspaces(model, towards if sign else rows[:0])
    models = *(each.contiguous().numpy() for each in about), *geometry(model)

    def work(part: slice) -> None:
        *batches, limit, loss, dot, square, outputs, likely = (each[part].numpy() for each in given)
        candidates.decide(*models, *batches, limit, sign, loss, dot, square, outputs, likely)

    each = -(-n // min(torch.get_num_threads(), n))
    on_threads(work, [slice(i, i + each) for i in range(0, n, each)])
    return out[0], out[1], out[2].clamp_min(0).sqrt()


def subspaces(model: Model, directions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the first layer's directions D (out, in + 1) mostly lie, biases last: P (K, out, r),
    orthonormal; (P^T D)^T (K, in + 1, r); how far they are from there, (K,). Any P does; a good one
    comes from random columns, refined."""
    width = VECTOR // directions.element_size()
    (W, b), size = model.split(directions)[:2], model.layout[1][3]  # (K, out, in), (K, out)
    columns = torch.randn(W.shape[2], width, generator=stream(0, "subspaces")).to(W)
    P = torch.linalg.qr(W @ (W.mT @ (W @ columns))).Q  # (K, out, min(out, r))
    P = nn.functional.pad(P, (0, width - P.shape[2]))
    within, length = torch.cat([W.mT @ P, b[:, None] @ P], 1), directions[:, :size].norm(dim=1)
    rest = (1 + SLACK) * length**2 - within.flatten(1).norm(dim=1) ** 2
    return P, within, rest.clamp_min(0).sqrt()


def step(
    model: Model, rows: Tensor, batch: Batch, labels: Tensor, lr: float, passes: Passes
) -> Tensor:
    """`Joint.update`; of batches in `passes` the forward half is known."""
    out, (outputs, likely) = rows.clone(), passes
    given = *batch, (likely == labels) & (outputs.shape[1] > 0), outputs
    x, y, mask, known, kept = (each.numpy() for each in given)

    def one(k: int) -> None:
        members = (labels == k).nonzero()[:, 0].numpy()
        start, end = rows[k].numpy(), out[k].numpy()
        candidates.mean_step(start, *geometry(model), x, y, mask, members, known, kept, lr, end)

    on_threads(one, labels.unique().tolist())
    return out


# ---- convolutional networks


def with_blocks(
    model: Model, rows: Tensor, directions: Tensor | None, batch: Batch, margin: Tensor, sign: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for convolutional networks, one gradient after the other."""
    loss = losses(model, rows, batch)
    dot, norm = torch.zeros_like(loss), torch.zeros_like(loss)
    if directions is None:
        return loss, dot, norm
    half, lengths = margin.to(rows).expand(len(loss), 1)[:, 0] / 2, directions.norm(dim=1)
    for i, models in enumerate(undecided(loss, 2 * half[:, None])):
        best = -math.inf
        for k in loss[i].argsort()[: int(models.sum())].tolist():
            if sign and half[i] + SLACK - loss[i, k] < best:
                break  # not even the best cosine, 1, would do
            gradient = gradient_of(model, rows[k], batch, i)
            dot[i, k], norm[i, k] = gradient @ directions[k], gradient.norm()
            cosine = sign * dot[i, k] / (norm[i, k] * lengths[k]).clamp_min(1e-30)
            best = max(best, float(half[i] * cosine - loss[i, k]))
    return loss, dot, norm


def losses(model: Model, rows: Tensor, batch: Batch) -> Tensor:
    """Mean loss of every client's batch under every model, (N, K)."""
    x, y, mask = batch
    images, share = (
        x.flatten(0, 1).unflatten(1, model.shape),
        mask.to(rows) / mask.sum(1, keepdim=True),
    )
    each = [
        nn.functional.cross_entropy(model.logits(row, images), y.flatten(), reduction="none")
        for row in rows
    ]
    return (torch.stack(each, -1).unflatten(0, y.shape) * share[..., None]).sum(1)


def undecided(loss: Tensor, margin: Tensor) -> Tensor:
    """Which models a client may still choose: (N, K), (N, 1) -> (N, K). None if there is no
    choice."""
    found = loss <= loss.amin(1, keepdim=True) + margin
    return found & (found.sum(1, keepdim=True) > 1)


def gradient_of(model: Model, row: Tensor, batch: Batch, i: int) -> Tensor:
    """The gradient (P,) of the mean loss on client i's batch."""
    from fedclust.fast import convnet

    (x, y, mask), out = (each[i] for each in batch), torch.empty_like(row)
    chosen = mask.nonzero()[:, 0].numpy()
    convnet.gradient(row.numpy(), geometry(model), x.numpy(), y.numpy(), chosen, out.numpy())
    return out


def step_with_blocks(model: Model, rows: Tensor, batch: Batch, labels: Tensor, lr: float) -> Tensor:
    """`Joint.update`: the mean of the clients' models after one step."""
    from fedclust.fast import convnet

    out, (x, y, mask), shape = rows.clone(), batch, geometry(model)
    plans = torch.arange(y.shape[1]).where(mask, -1)[:, None].numpy()  # (N, 1, B)
    how = lr, 0.0, 0.0, 0.0, math.inf, 0, np.uint64(0), 0.0

    def one(k: int) -> None:
        members = (labels == k).nonzero()[:, 0].tolist()
        ends = rows[[k] * len(members)]
        for end, i in zip(ends, members, strict=True):
            convnet.train(end.numpy(), shape, x[i].numpy(), y[i].numpy(), plans[i], how)
        out[k] = sum(ends) / len(members)

    on_threads(one, labels.unique().tolist())
    return out
