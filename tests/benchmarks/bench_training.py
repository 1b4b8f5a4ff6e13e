"""Local training, with and without privacy, against the plain PyTorch loop: same model, data and
steps.

The ways are timed in turn on one thread and their medians compared, in seconds of that thread's own
processor time, so that other work on the machine matters little. `make bench`.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from joblib import Parallel, delayed
from torch import nn
from torch.nn.functional import cross_entropy

from fedclust.federation import Federation
from fedclust.models import ChannelsLast, Model, cnn, mlp, vgg19
from fedclust.privacy import DPSGD
from fedclust.training import LocalSGD
from tests.benchmarks import bench_joint
from tests.benchmarks.loops import interleaved, medians

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
MLP = mlp(GREY, 10, (200, 200))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def compare(title: str, repeats: int = 7, **ways: Callable[[], object]) -> dict[str, float]:
    """How many times faster each way is than the first one."""
    median = medians(interleaved(ways, repeats))
    base = next(iter(median.values()))
    print(
        f"\n{title}: "
        + ", ".join(f"{name} {1000 * s:.1f} ms ({base / s:.2f}x)" for name, s in median.items())
    )
    return {name: base / s for name, s in median.items()}


def clients(n: int, size: int, shape: tuple[int, ...], classes: int = 10) -> Federation:
    draw = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(size, *shape, generator=draw), torch.randint(classes, (size,), generator=draw))
        for _ in range(n)
    ]
    tests = [(x[:1], y[:1]) for x, y in data]
    return Federation.stack(
        {"train": data, "test": tests}, group=torch.zeros(n, dtype=torch.long), classes=classes
    )


def usual(model: Model) -> nn.Module:
    """The module as one writes it: convolution, ReLU, pooling, in the default memory layout."""
    layers = [layer for layer in model.build() if not isinstance(layer, ChannelsLast)]
    for i, (a, b) in enumerate(pairwise(layers)):
        if isinstance(a, nn.MaxPool2d) and isinstance(b, nn.ReLU):
            layers[i], layers[i + 1] = b, a
    return nn.Sequential(*layers).to(memory_format=torch.contiguous_format)


def plain(trainer: LocalSGD, fed: Federation) -> None:
    """Every client's training, one after the other, with torch.optim.SGD."""
    for x, y in zip(fed.x, fed.y, strict=True):
        net = usual(trainer.model)
        step = torch.optim.SGD(net.parameters(), lr=trainer.lr, momentum=trainer.momentum)
        for _ in range(trainer.epochs):
            for batch in torch.randperm(len(y)).split(trainer.batch):
                step.zero_grad()
                cross_entropy(net(x[batch]), y[batch]).backward()
                step.step()


def ours(trainer: LocalSGD, fed: Federation) -> torch.Tensor:
    return trainer(trainer.model.init(0).expand(len(fed), -1), fed, torch.arange(len(fed)), 0, 0)


def test_perceptrons():
    """W1: 10 clients x 48 steps of batch 10."""
    fed, trainer = clients(10, 480, GREY), LocalSGD(MLP, lr=0.05, batch=10)
    moving, looped = replace(trainer, momentum=0.9), replace(trainer, backend="loop")
    ratio = compare(
        "MLP 784-200-200-10, 10 clients x 48 steps of 10",
        plain=lambda: plain(trainer, fed),
        stacked=lambda: ours(trainer, fed),
        loop=lambda: ours(looped, fed),
        momentum=lambda: ours(moving, fed),
    )
    assert ratio["stacked"] > 2
    assert ratio["loop"] > 0.9


def many(train: Callable, times: int, trainer: LocalSGD, fed: Federation) -> None:
    torch.set_num_threads(1)
    for _ in range(times):
        train(trainer, fed)


def test_two_workers():
    """Independent trials in two processes, wall time of both: needs two free cores."""
    fed, trainer = clients(10, 480, GREY), LocalSGD(MLP, lr=0.05, batch=10)
    with Parallel(n_jobs=2) as pool:
        pool(delayed(many)(ours, 2, trainer, fed) for _ in range(2))  # the processes start
        start = time.perf_counter()
        many(plain, 10, trainer, fed)
        middle = time.perf_counter()
        pool(delayed(many)(ours, 20, trainer, fed) for _ in range(2))
        end = time.perf_counter()
    print(
        f"\nthe same, two workers against one plain loop: {4 * (middle - start) / (end - middle):.2f}x (wall time)"
    )


W2 = LocalSGD(cnn(GREY, 10, (32, 64), 3, "last", (128,)), lr=0.01, batch=10)
W4 = LocalSGD(
    cnn(COLOUR, 10, (6, 16), 5, "each", (120, 84)), lr=0.01, batch=32, momentum=0.9, epochs=2
)
DCFL = LocalSGD(cnn(GREY, 47, (6, 16), 5, "each", (256,)), lr=0.1, batch=128, momentum=0.9)
NARROW, WIDE = (LocalSGD(vgg19(width=width), lr=0.1, batch=32) for width in (1 / 8, 1))


@pytest.mark.parametrize(
    ("title", "trainer", "n", "size"),
    [
        ("W2: MNIST CNN 32-64, batch 10", W2, 2, 480),
        ("W4: CIFAR CNN 6-16, batch 32, momentum", W4, 2, 500),
        ("DCFL's CNN, batch 128, momentum", DCFL, 4, 800),
        ("W5: VGG19 x 1/8, batch 32", NARROW, 1, 320),
        ("W5: VGG19, batch 32", WIDE, 1, 320),
    ],
)
def test_convolutions(title, trainer, n, size):
    fed, half = clients(n, size, trainer.model.shape), replace(trainer, autocast=True)
    more = {"bfloat16": lambda: ours(half, fed)} if trainer in (NARROW, WIDE) else {}
    ratio = compare(
        title, 3, plain=lambda: plain(trainer, fed), ours=lambda: ours(trainer, fed), **more
    )
    assert ratio["ours"] > 0.9


def test_private_training():
    """W6's client step; plain SGD without any privacy is the yardstick."""
    fed, trainer = clients(10, 480, GREY), LocalSGD(MLP, lr=0.05, batch=10)
    private = DPSGD(MLP, lr=0.05, batch=10, noise_multiplier=1.0)
    quiet = replace(private, noise_multiplier=0.0)
    compare(
        "DP-SGD on the MLP, batch 10",
        plain=lambda: plain(trainer, fed),
        stacked=lambda: ours(trainer, fed),
        clipped=lambda: ours(quiet, fed),
        clipped_and_noised=lambda: ours(private, fed),
    )
    large, loud = replace(trainer, batch=60), replace(private, batch=60)
    compare(
        "DP-SGD on the MLP, batch 60",
        plain=lambda: plain(large, fed),
        private=lambda: ours(loud, fed),
    )
    few, dp = (
        clients(4, 800, GREY),
        DPSGD(DCFL.model, lr=0.1, batch=128, momentum=0.9, noise_multiplier=1.0),
    )
    compare(
        "DP-SGD on DCFL's CNN, batch 128",
        plain=lambda: plain(DCFL, few),
        private=lambda: ours(dp, few),
    )


def test_joint_decisions():
    """W3."""
    bench_joint.main()
