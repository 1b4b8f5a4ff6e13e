"""From the library's objects to what compiled code takes, for training and predictions."""

from typing import Any

import numpy as np
from torch import Tensor

from fedclust.fast.compiled import on_threads
from fedclust.federation import Federation
from fedclust.models import Model
from fedclust.rng import key
from fedclust.training import LocalSGD


def geometry(model: Model) -> tuple[Any, ...]:
    """The perceptron's widths; before them, if there are blocks, the sides of pictures, channels
    and kernel."""
    if not model.blocks:
        return (np.array(model.dense),)
    sides = [model.shape[1:]]
    for i in range(1, len(model.blocks)):
        pooled = model.pool == "each" or i == len(model.blocks) - 1
        sides.append(tuple((n - model.kernel + 1) // (2 if pooled else 1) for n in sides[-1]))
    return np.array(sides), np.array(model.blocks), model.kernel, np.array(model.dense)


def train(
    train: LocalSGD, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
) -> Tensor:
    """One client after the other on each of PyTorch's threads: (n, P) -> (n, P)."""
    model, out, shape = train.model, theta.clone(), geometry(train.model)
    if model.blocks:
        from fedclust.fast.convnet import train as work
    else:
        from fedclust.fast.perceptron import train as work
    how = train.lr * train.decay**t, *map(float, (train.momentum, train.weight_decay, train.prox))
    x = fed.x.flatten(2).to(theta).contiguous().numpy()  # no copies, as a rule
    y = fed.y.contiguous().numpy()
    least, most = fed.y.aminmax()
    fits = fed.shape == model.shape and least >= 0 and most < model.classes

    def one(row: np.ndarray, i: int, name: int, size: int) -> None:
        if not fits:  # it may be the padding that does not
            model.check(fed.x[i], fed.y[i][fed.mask[i]], f"client {name}: ")
        plan, scale = train.batches(fed, i, seed, t).numpy(), train.noise(size)
        noise = np.uint64(key(seed, "noise", t, name) if scale else 0)
        work(row, shape, x[i], y[i], plan, (*how, *train.clipping(size), noise, scale))

    sizes = fed.mask[clients].sum(1).tolist()
    on_threads(one, out.numpy(), clients.tolist(), fed.ids[clients].tolist(), sizes)
    return out


def predict(model: Model, row: Tensor, x: Tensor) -> Tensor:
    """Logits of images, (P,), (B, ...) -> (B, classes)."""
    model.check(x)
    if model.blocks:
        from fedclust.fast.convnet import predict as work
    else:
        from fedclust.fast.candidates import predict as work
    images, out = x.to(row).flatten(1).contiguous(), row.new_empty(len(x), model.classes)
    if len(x):
        work(row.detach().contiguous().numpy(), geometry(model), images.numpy(), out.numpy())
    return out
