"""Which model suits a client's batch: losses and gradients of every (client, model) pair, without building gradients.

Perceptrons go through compiled code (`fedclust.fast.shared`); so do small convolutional networks, whose gradients are
made, one pair after the other. For other networks: the clients share K models, so a model runs once over all their
batches. For a linear layer with inputs a and deltas dz = dL/dz (of the client's mean loss), the gradient dz^T a is only
looked at through products: <dz^T a, V> = sum(dz * (a V^T)) and |dz^T a|^2 = sum((a a^T) * (dz dz^T)). Nothing of size
(N, K, P) exists.
"""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.grad import conv2d_weight

from fedclust.fast import convnet, shared
from fedclust.fast.compiled import on_threads
from fedclust.fast.matmul import fast_matmul
from fedclust.models import Model, values
from fedclust.rng import stream

Batch = tuple[Tensor, Tensor, Tensor]  # images (N, B, ...), labels (N, B), which are real (N, B)
Passes = tuple[Tensor, Tensor]  # hidden layers' outputs of every client's batch (N, units), of which model (N,)
Tap = tuple[nn.Module, Tensor, Tensor]  # a layer, its input, the delta of its output
SLACK = 1e-5  # of a squared length, and more: what rounding may take from it
CHUNK = 512  # samples at a time: their activations stay in the cache
STEEP = 1024.0  # a step this long is the gradient, to all its digits


def losses(model: Model, rows: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Mean loss of every client's batch under every model: (K, P), (N, B, ...), (N, B), (N, B) -> (N, K)."""
    if compilable(model, rows):
        return compiled_decisions(model, rows, None, (x, y, mask))[0]
    with fast_matmul(rows, CHUNK * model.size):
        each = [cross_entropy(model.logits(row, x.flatten(0, 1)), y.flatten(), reduction="none") for row in rows]
    return (torch.stack(each, -1).unflatten(0, y.shape) * shares(mask, rows)[..., None]).sum(1)  # (N, B, K) -> (N, K)


def decisions(
    model: Model,
    rows: Tensor,
    directions: Tensor | None,
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    margin: Tensor | float = float("inf"),
    sign: int = 0,
    passes: Passes | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """loss, <gradient, directions[k]> and |gradient| of every (client, model), (N, K) each.

    Without directions only the losses are computed and the others are zero. So are those of a model whose loss is more
    than `margin` (a number, or (N, 1)) above the client's least, and of all models of a client that is left with one.

    If what is sought is the largest margin / 2 * cosine - loss, with the cosine of sign * gradient and direction, say
    the `sign`: products may then be bounds that are sufficient to see which model has it. What that model made of the
    client's batch is kept in `passes` (`room` for it) if they are given: `chosen_step` need not do it again.
    """
    if compilable(model, rows):
        return compiled_decisions(model, rows, directions, (x, y, mask), margin, sign, passes)
    if directions is None:
        loss = losses(model, rows, x, y, mask)
        return loss, torch.zeros_like(loss), torch.zeros_like(loss)
    margin = torch.as_tensor(margin).to(rows).expand(len(x), 1)
    if model.compiled(rows):
        batches, loss = plain(model, rows, (x, y, mask)), losses(model, rows, x, y, mask)
        dot, norm = torch.zeros_like(loss), torch.zeros_like(loss)
        lengths, half = directions.norm(dim=1), margin[:, 0] / 2
        for i, models in enumerate(undecided(loss, margin)):
            best = -math.inf
            for k in loss[i].argsort()[: int(models.sum())].tolist():
                if sign and half[i] + SLACK - loss[i, k] < best:
                    break  # not even the best cosine, 1, would do
                gradient = (rows[k] - stepped(model, rows[k], batches, i, STEEP)) / STEEP
                dot[i, k], norm[i, k] = gradient @ directions[k], gradient.norm()
                cosine = sign * dot[i, k] / (norm[i, k] * lengths[k]).clamp_min(1e-30)
                best = max(best, float(half[i] * cosine - loss[i, k]))
        return loss, dot, norm
    share, (loss, dot, square) = shares(mask, rows), rows.new_zeros(3, len(x), len(rows))
    modules = [model.module(row).eval() for row in rows]
    names = [{layer: name for name, layer in net.named_modules()} for net in modules]
    towards = [{p[0]: v for p, v in zip(model.layout, model.split(way), strict=True)} for way in directions]
    with fast_matmul(rows, CHUNK * model.size):
        for part in chunks(y):
            inputs, s = (x[part].flatten(0, 1).to(rows), y[part].flatten()), share[part]
            tapped = [taps(net, *inputs, s.flatten()) for net in modules]
            loss[part] = torch.stack([(each.view_as(s) * s).sum(1) for each, _ in tapped], 1)
            open_ = undecided(loss[part], margin[part])
            for k, (_, backward) in enumerate(tapped):
                who = slice(None) if open_[:, k].all() else open_[:, k].nonzero()[:, 0]
                for layer, a, dz in backward() if open_[:, k].any() else ():
                    a, dz = a.unflatten(0, s.shape)[who], dz.unflatten(0, s.shape)[who]  # (n, B, ...)
                    V, v = towards[k][names[k][layer] + ".weight"], towards[k].get(names[k][layer] + ".bias")
                    products, squares = by_client(layer, a, dz, V, v)
                    dot[part, k][who] += products
                    square[part, k][who] += squares
    return loss, dot, square.sqrt()


def undecided(loss: Tensor, margin: Tensor) -> Tensor:
    """Which models a client may still choose: (N, K), (N, 1) -> (N, K). None where it has no choice."""
    found = loss <= loss.amin(1, keepdim=True) + margin
    return found & (found.sum(1, keepdim=True) > 1)


def compilable(model: Model, rows: Tensor) -> bool:
    return not model.blocks and model.compiled(rows)


def stepped(model: Model, row: Tensor, batches: Batch, i: int, lr: float) -> Tensor:
    """A small convolutional network (P,) after one step on the batch of client i, of `plain` ones."""
    (x, y, mask), end = (each[i] for each in batches), row.clone()
    plan = torch.arange(len(y)).where(mask, -1)[None]  # (1, B)
    convnet.train(end.numpy(), *model.geometry, x.numpy(), y.numpy(), plan.numpy(), lr, 0.0, 0.0, 0.0,
                  math.inf, 0, np.uint64(0), 0.0)  # fmt: skip
    return end


def plain(model: Model, rows: Tensor, batch: Batch) -> Batch:
    """Batches as compiled code takes them; images and labels are checked, since it does not."""
    x, y, mask = batch
    model.check(x.flatten(0, 1), y[mask])
    return x.flatten(2).to(rows).contiguous(), y.contiguous(), mask.contiguous()


def room(model: Model, rows: Tensor, y: Tensor) -> Passes:
    """For what hidden layers make of batches with labels y (N, B), as compiled code leaves it; else none."""
    widths = model.geometry[0][1:-1].tolist() if compilable(model, rows) else []
    units = sum(shared.padded(width, shared.VECTOR // rows.itemsize) for width in widths)
    return rows.new_empty(len(y), y.shape[1] * units), torch.full((len(y),), -1)


def compiled_decisions(
    model: Model,
    rows: Tensor,
    directions: Tensor | None,
    batch: Batch,
    margin: Tensor | float = 0.0,
    sign: int = 0,
    passes: Passes | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`decisions` for perceptrons, an equal share of the clients on each of PyTorch's threads."""
    n = len(batch[0])
    out = rows.new_zeros(3, n, len(rows))
    margins = torch.as_tensor(margin).to(rows).expand(n, 1)[:, 0].contiguous()
    given = (*plain(model, rows, batch), margins, *out, *(passes or (rows.new_empty(n, 0), torch.empty(n).long())))
    towards = rows[:0] if directions is None else directions
    about = rows, towards, *subspaces(model, towards if sign else rows[:0])
    models = *(each.contiguous().numpy() for each in about), *model.geometry

    def work(part: slice) -> None:
        *batches, margin, loss, dot, square, outputs, likely = (each[part].numpy() for each in given)
        shared.decide(*models, *batches, margin, sign, loss, dot, square, outputs, likely)

    each = -(-n // min(torch.get_num_threads(), n))
    on_threads(work, [slice(i, i + each) for i in range(0, n, each)])
    return out[0], out[1], out[2].clamp_min(0).sqrt()


def subspaces(model: Model, directions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the first layer's directions D (out, in + 1) mostly lie, biases last: P (K, out, r), orthonormal; (P^T D)^T
    (K, in + 1, r); how far they are from there, (K,). Any P does; a good one comes from random columns, refined."""
    width = shared.VECTOR // directions.element_size()
    (W, b), size = model.split(directions)[:2], model.layout[1][3]  # (K, out, in), (K, out)
    columns = torch.randn(W.shape[2], width, generator=stream(0, "subspaces")).to(W)
    P = torch.linalg.qr(W @ (W.mT @ (W @ columns))).Q  # (K, out, min(out, r))
    P = nn.functional.pad(P, (0, width - P.shape[2]))
    within, length = torch.cat([W.mT @ P, b[:, None] @ P], 1), directions[:, :size].norm(dim=1)
    return P, within, ((1 + SLACK) * length**2 - within.flatten(1).norm(dim=1) ** 2).clamp_min(0).sqrt()


def by_client(layer: nn.Module, a: Tensor, dz: Tensor, V: Tensor, v: Tensor | None) -> tuple[Tensor, Tensor]:
    """<gradient, (V, v)> and |gradient|^2 of a layer per client, from inputs and deltas: (n, B, ...) -> (n,), (n,)."""
    if isinstance(layer, nn.Conv2d):  # kernels are small: build them, one client at a time
        pairs = [parameter_gradient(layer, one, delta) for one, delta in zip(a, dz, strict=True)]
        g = torch.stack([torch.cat([weight.flatten(), bias]) for weight, bias in pairs])  # (n, weight and bias)
        towards = torch.cat([V.flatten(), torch.zeros_like(pairs[0][1]) if v is None else v])
        return g @ towards, g.square().sum(1)
    along = nn.functional.linear(a, V, v)  # (n, B, in) -> (n, B, out)
    gram = a @ a.mT + (v is not None)  # (n, B, B); a bias is a weight whose input is 1
    return (dz * along).sum((1, 2)), (gram * (dz @ dz.mT)).sum((1, 2))


def chosen_step(
    model: Model,
    rows: Tensor,
    choice: Tensor,
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    lr: float,
    passes: Passes | None = None,
) -> Tensor:
    """The mean over each model's clients of their models after one SGD step from it, (K, P); unchosen models stay.

    All start from the same model, so that is one step along the clients' mean gradient: one backward per model. Of
    batches in `passes` the forward half is known.
    """
    out = rows.clone()
    if model.compiled(rows):
        batches, (outputs, likely) = plain(model, rows, (x, y, mask)), passes or room(model, rows, y)
        given = *batches, (likely == choice) & (outputs.shape[1] > 0), outputs
        images, labels, real, known, kept = (each.numpy() for each in given)

        def step(k: int) -> None:
            members = (choice == k).nonzero()[:, 0]
            if model.blocks:
                out[k] = sum(stepped(model, rows[k], batches, i, lr) for i in members.tolist()) / len(members)
            else:
                shared.mean_step(rows[k].numpy(), *model.geometry, images, labels, real, members.numpy(), known, kept,
                                 lr, out[k].numpy())  # fmt: skip

        on_threads(step, choice.unique().tolist())
        return out
    share = shares(mask, rows)
    with fast_matmul(rows, CHUNK * model.size):
        for k, net in nets(model, rows, choice.unique().tolist()):
            members = (choice == k).nonzero()[:, 0]
            for part in chunks(y[members]):
                i = members[part]
                loss = cross_entropy(net(x[i].flatten(0, 1).to(rows)), y[i].flatten(), reduction="none")
                (loss @ share[i].flatten() / len(members)).backward()
            gradient = torch.cat([w.grad.flatten() for w in net.parameters() if w.grad is not None])
            out[k, : model.parameters].sub_(gradient, alpha=lr)
    return out


def taps(net: nn.Module, x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Callable[[], list[Tap]]]:
    """Every sample's loss (B,), and what runs backward: (layer, its input, d(weight . loss)/d(its output)) of all
    layers with parameters.

    No gradient of a parameter is computed: linear layers and convolutions give them as products of the two.
    """
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []

    def tap(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        seen.append((layer, inputs[0].detach(), output if output.requires_grad else output.requires_grad_()))

    known = [layer for layer in net.modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    if sum(w.numel() for w in net.parameters()) != sum(w.numel() for layer in known for w in layer.parameters()):
        others = {type(m).__name__ for m in net.modules() if m not in known and list(m.parameters(recurse=False))}
        raise ValueError(
            f"{sorted(others)}: gradients per sample or client are known for Linear and Conv2d only; use a model "
            "without other parameters (no batch norm, which mixes samples)"
        )
    for layer in net.modules():
        if getattr(layer, "inplace", False):
            layer.inplace = False  # type: ignore[assignment]  # the outputs are needed as they were
    hooks = [layer.register_forward_hook(tap) for layer in known]
    try:
        with torch.enable_grad():
            loss = cross_entropy(net.requires_grad_(False)(x), y, reduction="none")
    finally:
        for hook in hooks:
            hook.remove()
    if len(seen) != len(known):
        raise ValueError(f"{len(known)} layers were used {len(seen)} times in one pass: each must be used exactly once")

    def backward() -> list[Tap]:
        deltas = torch.autograd.grad(loss, [output for *_, output in seen], weight)
        return [(layer, a, dz) for (layer, a, _), dz in zip(seen, deltas, strict=True)]

    return loss.detach(), backward


def parameter_gradient(layer: nn.Module, a: Tensor, dz: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of a layer's weight and bias from its input and delta; empty for no bias."""
    bias = dz.movedim(1, -1).flatten(0, -2).sum(0)[: None if layer.bias is not None else 0]
    if isinstance(layer, nn.Conv2d):
        how = (layer.stride, layer.padding, layer.dilation, layer.groups)
        return conv2d_weight(a, layer.weight.shape, dz, *how), bias
    return dz.T @ a, bias


def nets(model: Model, rows: Tensor, which: Iterable[int]) -> Iterator[tuple[int, nn.Module]]:
    """One module that carries one row after the other: making modules takes longer than small ones compute."""
    net = model.module(rows[0]).eval()
    for k in which:
        with torch.no_grad():
            torch._foreach_copy_(values(net), model.split(rows[k]))
        net.zero_grad()
        yield k, net


def shares(mask: Tensor, like: Tensor) -> Tensor:
    """Weight of each sample in its client's mean, (N, B); zero for padding."""
    return mask.to(like) / mask.sum(1, keepdim=True)


def chunks(y: Tensor) -> Iterator[slice]:
    """Slices of clients (N, B) with about CHUNK samples each."""
    step = max(CHUNK // y.shape[1], 1)
    return (slice(i, i + step) for i in range(0, len(y), step))
