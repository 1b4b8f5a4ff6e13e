"""Gradients per sample and per client, from the inputs and outputs of layers.

With a layer's inputs a and the deltas dz = dL/dz of its outputs, a linear layer's gradient is dz^T
a. Deltas of a weighted sum of losses are the samples' own, weighted: one pass backward serves all
samples (DP-SGD) or clients (Joint). What is only looked at through products is never built:

    <dz^T a, V> = sum(dz * (a V^T))        |dz^T a|^2 = sum((a a^T) * (dz dz^T))
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.nn.grad import conv2d_weight

from fedclust import fast
from fedclust.models import CHUNK, Model

Batch = tuple[Tensor, Tensor, Tensor]  # images (N, B, ...), labels (N, B), which are real (N, B)
Tap = tuple[nn.Module, Tensor, Tensor]  # a layer, its input, the delta of its output


def taps(
    net: nn.Module, x: Tensor, y: Tensor, weight: Tensor
) -> tuple[Tensor, Callable[[], list[Tap]]]:
    """Every sample's loss (B,), and what runs backward: (layer, its input, d(weight . loss)/d(its
    output)) of all layers with parameters."""
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []

    def tap(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        output = output if output.requires_grad else output.requires_grad_()
        seen.append((layer, inputs[0].detach(), output))

    known = [layer for layer in net.modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    counted = sum(w.numel() for layer in known for w in layer.parameters())
    if sum(w.numel() for w in net.parameters()) != counted:
        others = [m for m in net.modules() if m not in known and list(m.parameters(recurse=False))]
        raise ValueError(
            f"{sorted({type(m).__name__ for m in others})}: gradients per sample or client exist "
            "for Linear and Conv2d only: use a model without others (batch norm mixes samples)"
        )
    for layer in net.modules():
        if getattr(layer, "inplace", False):
            layer.inplace = False  # type: ignore[assignment]  # outputs are needed as they were
    hooks = [layer.register_forward_hook(tap) for layer in known]
    try:
        with torch.enable_grad():
            loss = cross_entropy(net.requires_grad_(False)(x), y, reduction="none")
    finally:
        for hook in hooks:
            hook.remove()
    if len(seen) != len(known):
        raise ValueError(
            f"{len(known)} layers were used {len(seen)} times in one pass: "
            "each must be used exactly once"
        )

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


def by_client(
    model: Model, row: Tensor, direction: Tensor | None, batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean loss, <gradient, direction> and |gradient| of each client's batch, (N,) each; the last
    two are 0 without a direction."""
    x, y, mask = batch
    share = shares(mask, row)
    loss, dot, square = row.new_zeros(3, len(x))
    net = model.module(row).eval()
    names = {layer: name for name, layer in net.named_modules()}
    parts = [] if direction is None else model.split(direction)
    aim = {name: part for (name, *_), part in zip(model.layout, parts, strict=False)}
    with fast.large_products(row, CHUNK * model.size):
        for part in chunks(y):
            inputs, weight = x[part].flatten(0, 1).to(row), share[part]
            each, backward = taps(net, inputs, y[part].flatten(), weight.flatten())
            loss[part] = (each.view_as(weight) * weight).sum(1)
            for layer, a, dz in backward() if aim else ():
                a, dz = (v.unflatten(0, weight.shape) for v in (a, dz))  # (n, B, ...)
                V, v = aim[names[layer] + ".weight"], aim.get(names[layer] + ".bias")
                products, squares = of_layer(layer, a, dz, V, v)
                dot[part] += products
                square[part] += squares
    return loss, dot, square.sqrt()


def of_layer(
    layer: nn.Module, a: Tensor, dz: Tensor, V: Tensor, v: Tensor | None
) -> tuple[Tensor, Tensor]:
    """<gradient, (V, v)> and |gradient|^2 of a layer for each client: (n, B, ...) -> (n,), (n,)."""
    if isinstance(layer, nn.Conv2d):  # kernels are small: build them
        pairs = [parameter_gradient(layer, *one) for one in zip(a, dz, strict=True)]
        gradient = torch.stack([torch.cat([g.flatten(), bias]) for g, bias in pairs])
        aim = torch.cat([V.flatten(), torch.zeros_like(pairs[0][1]) if v is None else v])
        return gradient @ aim, gradient.square().sum(1)
    gram = a @ a.mT + (v is not None)  # (n, B, B); a bias is a weight whose input is 1
    return (dz * linear(a, V, v)).sum((1, 2)), (gram * (dz @ dz.mT)).sum((1, 2))


def shares(mask: Tensor, like: Tensor) -> Tensor:
    """Weight of each sample in its client's mean, (N, B); zero for padding."""
    return mask.to(like) / mask.sum(1, keepdim=True)


def chunks(y: Tensor) -> Iterator[slice]:
    """Slices of clients (N, B) with about CHUNK samples each."""
    step = max(CHUNK // y.shape[1], 1)
    return (slice(i, i + step) for i in range(0, len(y), step))
