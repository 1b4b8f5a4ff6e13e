"""Joint's decisions: no more gradients than the largest score needs.

With lambda * S - (1 - lambda) * L and a cosine S between -1 and 1, a model whose loss is more than
2 lambda / (1 - lambda) above the least is never picked. Of the others of a client, gradients are
made in the order of their losses, until no other can win: of perceptrons in `candidates`, of
convolutional networks here. Values that were not needed are zero.

Tested against `Joint.look` (tests/fast/test_choice.py).
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from fedclust.algorithms.ifca import Batch
from fedclust.algorithms.joint import Joint, Seen
from fedclust.fast import candidates
from fedclust.fast.compiled import on_threads
from fedclust.fast.training import geometry
from fedclust.models import Model


def choose(method: Joint, rows: Tensor, directions: Tensor | None, batch: Batch) -> Seen:
    """What `Joint.look` gives, as far as it matters for the largest score."""
    model, toward = method.train.model, -1 if method.sign == "descent" else 1
    prepared = plain(model, rows, batch)
    limit = margin(method, batch[2].sum(1, keepdim=True))
    if model.blocks:
        seen = with_blocks(model, rows, directions, prepared, limit, toward)
        return Seen(*seen, lambda labels, lr: step_with_blocks(model, rows, prepared, labels, lr))
    seen = of_perceptrons(model, rows, directions, prepared, limit, toward)
    return Seen(*seen, lambda labels, lr: step(model, rows, prepared, labels, lr))


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


def of_perceptrons(
    model: Model, rows: Tensor, directions: Tensor | None, batch: Batch, margin: Tensor, sign: int
) -> tuple[Tensor, Tensor, Tensor]:
    """loss, <gradient, direction> and |gradient|, (N, K) each; an equal share of the clients on
    each of PyTorch's threads.

    With a `sign` the largest margin / 2 * cosine - loss is sought, with the cosine of sign *
    gradient and direction.
    """
    n = len(batch[0])
    out, limit = rows.new_zeros(3, n, len(rows)), margin.to(rows).expand(n, 1)[:, 0].contiguous()
    towards = rows[:0] if directions is None else directions
    models = *(each.contiguous().numpy() for each in (rows, towards)), *geometry(model)

    def work(part: slice) -> None:
        *given, loss, dot, square = (each[part].numpy() for each in (*batch, limit, *out))
        candidates.decide(*models, *given, sign, loss, dot, square)

    each = -(-n // min(torch.get_num_threads(), n))
    on_threads(work, [slice(i, i + each) for i in range(0, n, each)])
    return out[0], out[1], out[2].sqrt()


def step(model: Model, rows: Tensor, batch: Batch, labels: Tensor, lr: float) -> Tensor:
    """`Joint.update`: the mean of the clients' models after one step."""
    out, (x, y, mask) = rows.clone(), (each.numpy() for each in batch)

    def one(k: int) -> None:
        members = (labels == k).nonzero()[:, 0].numpy()
        start, end = rows[k].numpy(), out[k].numpy()
        candidates.mean_step(start, *geometry(model), x, y, mask, members, lr, end)

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
            if sign and half[i] + candidates.SLACK - loss[i, k] < best:
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
