"""Work that no peer offers, against the loop one would write without us: W3 joint decisions, W5
VGG19, W6 private DCFL.

Ways of one workload take turns. On one thread its own processor time counts: other work matters
little.
"""

import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedclust import datasets, fast, partition
from fedclust.algorithms import DCFL, Joint
from fedclust.algorithms.ifca import first_batches
from fedclust.federation import Federation
from fedclust.models import ChannelsLast, Model, cnn, mlp, vgg19
from fedclust.privacy import DPSGD
from fedclust.rng import stream
from fedclust.training import LocalSGD

GREY = (1, 28, 28)
Ways = dict[str, Callable[[], object]]


def interleaved(ways: Ways, repeats: int) -> dict[str, list[float]]:
    """Seconds of every repetition, the ways taking turns; one round before them does not count. Of
    one thread they are its processor's, so that other work on the machine matters little."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            start = clock()
            way()
            if repeat:
                spent[name].append(clock() - start)
    return spent


def medians(spent: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in spent.items()}


def clients(n: int, size: int, shape: tuple[int, ...], classes: int) -> Federation:
    draw = stream(0, "bench")
    data = [
        (torch.randn(size, *shape, generator=draw), torch.randint(classes, (size,), generator=draw))
        for _ in range(n)
    ]
    tests = [(x[:1], y[:1]) for x, y in data]
    return Federation.stack(
        {"train": data, "test": tests}, group=torch.zeros(n, dtype=torch.long), classes=classes
    )


def usual(model: Model, row: Tensor | None = None) -> nn.Module:
    """The module as one writes it: convolution, ReLU, pooling, in the default memory layout."""
    net = model.build() if row is None else model.module(row)
    layers = [
        layer
        for layer in net.modules()
        if not list(layer.children()) and not isinstance(layer, ChannelsLast)
    ]
    for i, (a, b) in enumerate(pairwise(layers)):
        if isinstance(a, nn.MaxPool2d) and isinstance(b, nn.ReLU):
            layers[i], layers[i + 1] = b, a
    return nn.Sequential(*layers).to(memory_format=torch.contiguous_format)


def joint(
    devices: int = 80, gradients: bool = True, iteration: int = 1, noise: bool = False
) -> Ways:
    """W3: every device scores every model on its batch, takes the best, makes a step from it;
    models are averaged.

    On MNIST, split as in the paper; or on noise, whose labels each group of devices turns by two
    more: there is no background that need not be multiplied.
    """
    model, k, batch = mlp(GREY, 8, (512, 128)), 4, 64
    if noise:
        draw = stream(0, "bench")
        kind, group = torch.randint(8, (devices, batch), generator=draw), torch.arange(devices) % k
        x = 0.3 * torch.randn(8, *GREY, generator=draw)[kind] + torch.randn(
            devices, batch, *GREY, generator=draw
        )
        each = list(zip(x, (kind + 2 * group[:, None]) % 8, strict=True))
        fed = Federation.stack({"train": each, "test": each}, group=group, classes=8)
    else:
        data = datasets.load("mnist")
        fed = partition.class_table(
            data, partition.TABLES["mnist"], devices=devices, relabel=True, seed=0
        )
    method = Joint(LocalSGD(model, lr=0.1, batch=batch), k, lam=0.2)
    state = method.init(model.init(0), fed, 0)
    for t in range(iteration):
        state, _ = method.step(state, fed, 0, t)
    rows, directions = state.models, state.models - state.memory["previous"]
    x, y, mask = seen = first_batches(method.train, fed, 0, iteration)
    count = mask.sum(1, keepdim=True)
    modules, found = [model.module(row) for row in rows], {}

    def loop() -> None:
        score, returned = torch.empty(devices, k), [torch.zeros_like(row) for row in rows]
        for i in range(devices):
            for j, net in enumerate(modules):
                net.zero_grad()
                with torch.set_grad_enabled(gradients):
                    loss = cross_entropy(net(x[i]), y[i])
                score[i, j] = -loss.detach()
                if gradients:
                    loss.backward()
                    gradient = torch.cat([w.grad.flatten() for w in net.parameters()])
                    cosine = torch.cosine_similarity(-gradient, directions[j], dim=0)
                    score[i, j] = 0.2 * cosine - 0.8 * loss.detach()
            j = int(score[i].argmax())
            own = model.module(rows[j])
            step = torch.optim.SGD(own.parameters(), 0.1)
            cross_entropy(own(x[i]), y[i]).backward()
            step.step()
            returned[j] += model.row(own)
        choice = found["loop"] = score.argmax(1)
        torch.stack([r / (choice == j).sum().clamp_min(1) for j, r in enumerate(returned)])

    def ours() -> None:
        dw = directions if gradients else None
        look = fast.choose(method, rows, dw, seen)
        found["ours"] = method.score(look, dw, count).argmax(1)
        look.update(found["ours"], 0.1)

    loop(), ours()
    assert torch.equal(found["loop"], found["ours"]), "both ways must choose the same models"
    return {"plain loop": loop, "fedclust": ours}


def vgg(samples: int = 320, width: float = 1.0) -> Ways:
    """W5: an epoch of one client (CAFA's have 2,000 images) on VGG19 with batch norm, batch 32."""
    fed, model = clients(1, samples, (3, 32, 32), 10), vgg19(width=width)
    train, net = LocalSGD(model, lr=0.05, batch=32), usual(model)
    start = model.init(0)[None]

    def loop() -> None:
        step = torch.optim.SGD(net.train().parameters(), 0.05)
        for batch in torch.randperm(samples, generator=stream(0, "order")).split(32):
            step.zero_grad()
            cross_entropy(net(fed.x[0][batch]), fed.y[0][batch]).backward()
            step.step()

    def ours(train: LocalSGD) -> Callable[[], object]:
        return lambda: train(start, fed, torch.arange(1), 0, 0)

    return {
        "plain loop": loop,
        "fedclust": ours(train),
        "fedclust, bfloat16": ours(replace(train, autocast=True)),
    }


def private(model: Model, n: int, size: int, batch: int, momentum: float = 0.0) -> Ways:
    """W6: a round of DCFL, every client trained with DP-SGD. Opacus' wrappers are made once, not in
    every round."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    fed = clients(n, size, model.shape, model.classes)
    train = DPSGD(model, lr=0.05, batch=batch, momentum=momentum, noise_multiplier=1.0)
    method, theta = DCFL(train), model.init(0)
    state = method.init(theta, fed, 0)

    def opacus() -> None:
        ends = []
        for i in range(n):
            with torch.no_grad():
                for w, value in zip(
                    net.parameters(), usual(model, theta).parameters(), strict=True
                ):
                    w.copy_(value)
            step = DPOptimizer(
                torch.optim.SGD(wrapped.parameters(), 0.05, momentum),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
                expected_batch_size=batch,
                generator=stream(0, "noise", i),
            )
            drawn = (
                torch.rand(math.ceil(size / batch), size, generator=stream(0, "batches", i))
                < batch / size
            )
            for chosen in drawn:
                step.zero_grad()
                cross_entropy(wrapped(fed.x[i][chosen]), fed.y[i][chosen]).backward()
                step.step()
            ends.append(torch.cat([w.detach().flatten() for w in net.parameters()]))
        replace(method, train=Returned(train, torch.stack(ends))).step(state, fed, 0, 0)

    warnings.filterwarnings("ignore", "Full backward hook")  # Opacus' own, and as it should be
    net = usual(model)
    wrapped = GradSampleModule(net.train())
    return {"Opacus in a loop": opacus, "fedclust": lambda: method.step(state, fed, 0, 0)}


class Returned:
    """A trainer whose work was done elsewhere."""

    def __init__(self, train: DPSGD, ends: Tensor):
        self.model, self.ends = train.model, ends

    def __call__(self, *_: object) -> Tensor:
        return self.ends


def all_ways(small: bool = False) -> dict[str, Ways]:
    """Every workload; `small` only shows that it runs."""
    perceptron, net = mlp(GREY, 10, (200, 200)), cnn(GREY, 47, (6, 16), 5, "each", (256,))
    devices, width, n, size, batch = (8, 1 / 16, 4, 64, 32) if small else (80, 1.0, 16, 800, 100)
    return {
        "W3": joint(devices),
        "W3 later": joint(devices, iteration=30),
        "W3 IFCA": joint(devices, gradients=False),
        "W3 noise": joint(devices, noise=True),
        "W5": vgg(width=width),
        "W6": private(perceptron, n, min(size, 480), 10),
        "W6 CNN": private(net, n, size, batch, 0.9),
    }
