"""Models: a model is a row of numbers, an architecture is what turns rows into predictions.

A row holds the parameters, in the order of the module, and then the float buffers that must travel
with them (the running statistics of batch norm). Averages and distances are matrix arithmetic.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import accumulate, pairwise
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor, nn

from fedclust import fast
from fedclust.checks import Count, checked, require
from fedclust.paths import from_parts, short
from fedclust.rng import stream

Widths = tuple[int, ...]

PAPERS = {"vgg19": "cafa"}  # as in `partition`
__all__ = ["cnn", "mlp", *PAPERS]  # what a trial can name
__getattr__, __dir__ = from_parts(__name__, PAPERS)

CHUNK = 512  # samples in a forward pass: their activations stay in the cache
WIDEST = 100_000  # units, channels or classes of a layer


@dataclass(frozen=True)
class Model:
    """An architecture. `build` must be importable (a function or a partial of one) to travel
    between processes.

    A plain ReLU perceptron says so by its widths, `dense`, e.g. (784, 200, 200, 10). `blocks` are
    the channels, e.g. (3, 6, 16), of blocks before it: convolution with this `kernel`, 2x2 maximum
    (in "each" or the "last": `pool`), ReLU. For these `fast` has quicker ways than the module.
    Predictions are made on `device`, wherever rows and images are kept.
    """

    build: Callable[[], nn.Module] = field(repr=False)
    shape: Widths
    classes: int
    dense: Widths | None = None
    blocks: Widths = ()
    kernel: int = 0
    pool: str = "each"
    name: str = "custom"
    device: str = "cpu"

    @cached_property
    def layout(self) -> list[tuple[str, Widths, int, int]]:
        """(name, shape, start, stop) of every part of the row, parameters before buffers."""
        named = named_values(prototype(self.build))
        stops = list(accumulate(value.numel() for _, value in named))
        return [
            (n, tuple(v.shape), stop - v.numel(), stop)
            for (n, v), stop in zip(named, stops, strict=True)
        ]

    @cached_property
    def size(self) -> int:
        """Numbers in a row, P."""
        return self.layout[-1][3]

    @cached_property
    def parameters(self) -> int:
        """How many of them are trainable: the first ones of the row."""
        return sum(p.numel() for p in prototype(self.build).parameters())

    def split(self, rows: Tensor) -> list[Tensor]:
        """Views of the parts, (..., P) -> [(..., *shape)]."""
        return [
            rows[..., start:stop].unflatten(-1, shape or (1,))
            for _, shape, start, stop in self.layout
        ]

    def init(self, seed: int, k: int = 0) -> Tensor:
        """The k-th initial model of a seed: weights and biases U(-b, b) with b = 1/sqrt(fan in)."""
        generator, row = stream(seed, "init", k), self.row(prototype(self.build))
        trainable = [part for part in self.layout if part[2] < self.parameters]
        matrices = [part for part in trainable if len(part[1]) > 1]
        fan_in = {name.rpartition(".")[0]: math.prod(shape[1:]) for name, shape, *_ in matrices}
        for name, _, start, stop in trainable:
            if inputs := fan_in.get(name.rpartition(".")[0]):
                row[start:stop].uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
        return row

    def module(self, row: Tensor) -> nn.Module:
        """A new module with a copy of the row's values, on the row's device and in its type."""
        net = copy.deepcopy(prototype(self.build)).to(row)
        with torch.no_grad():
            torch._foreach_copy_(values(net), self.split(row))
        return net

    def row(self, module: nn.Module) -> Tensor:
        """The values of a module, (P,)."""
        return torch.cat([value.detach().flatten() for value in values(module)])

    def check(self, x: Tensor, y: Tensor | None = None, whose: str = "") -> None:
        """Names images (B, ...) and labels that do not fit."""
        images = f"{whose}images are {tuple(x.shape[1:])}: {self.name!r} takes {self.shape}"
        require(x.shape[1:] == self.shape, images)
        if y is not None and not bool(((y >= 0) & (y < self.classes)).all()):
            gives = f"{self.name!r} gives {self.classes} classes, 0 to {self.classes - 1}"
            raise ValueError(f"{whose}labels are {y.unique().tolist()}: {gives}")

    @torch.no_grad()
    def logits(self, row: Tensor, x: Tensor) -> Tensor:
        """Predictions in evaluation mode, (P,), (B, ...) -> (B, classes)."""
        home, row = row.device, row.to(self.device)
        if fast.predicts(self, row):
            return fast.predict(self, row, x).to(home)
        net = self.module(row).eval()
        return torch.cat([net(part.to(row)).to(home) for part in x.split(CHUNK)])


@lru_cache(maxsize=8)
def prototype(build: Callable[[], nn.Module]) -> nn.Module:
    """One module to read shapes from and to copy. The global generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        return build()


def named_values(net: nn.Module) -> list[tuple[str, Tensor]]:
    """Names and tensors in row order: parameters, then running means and variances."""
    buffers = [(name, b) for name, b in net.named_buffers() if b.is_floating_point()]
    return [*net.named_parameters(), *buffers]


def values(net: nn.Module) -> list[Tensor]:
    return [value for _, value in named_values(net)]


def dense_layers(widths: Widths) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return layers[:-1]


def build_mlp(widths: Widths) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *dense_layers(widths))


@checked
def mlp(shape: Widths, classes: Count, hidden: Widths = (200,)) -> Model:
    """Multi-layer perceptron with ReLU: joint (512, 128), OCFL (64,).

    >>> model = mlp((1, 28, 28), classes=10, hidden=(200,))
    >>> model.size == 784 * 200 + 200 + 200 * 10 + 10
    True
    """
    check_widths(shape=shape, hidden=hidden)
    widths = (math.prod(shape), *hidden, classes)
    name = f"mlp{tuple(hidden)}"
    return Model(partial(build_mlp, widths), tuple(shape), classes, widths, name=name)


class ChannelsLast(nn.Module):
    """Images with their channels side by side in memory: the same results, mostly faster."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last)


def convolutional(layers: list[nn.Module], widths: Widths) -> nn.Module:
    """Convolutional layers and a perceptron on top."""
    net = nn.Sequential(*layers, nn.Flatten(), *dense_layers(widths))
    layout = torch.channels_last if isinstance(layers[0], ChannelsLast) else torch.contiguous_format
    return net.to(memory_format=layout)  # type: ignore[call-overload]


def build_cnn(
    shape: Widths, classes: int, channels: Widths, kernel: int, pool: str, hidden: Widths
) -> nn.Module:
    depth, *sides = shape
    layers: list[nn.Module] = [ChannelsLast()]
    for i, c in enumerate(channels, 1):
        layers.append(nn.Conv2d(depth, c, kernel))
        depth, sides = c, [side - kernel + 1 for side in sides]
        if pool == "each" or i == len(channels):
            layers.append(nn.MaxPool2d(2))  # ReLU after it has a quarter of the numbers to do
            sides = [side // 2 for side in sides]
        layers.append(nn.ReLU())
        require(
            min(sides) >= 1,
            f"shape={shape}: nothing is left after convolution {i} of {len(channels)} with "
            f"kernel={kernel} and pool={pool!r}: use fewer, a smaller kernel or larger images",
        )
    return convolutional(layers, (depth * math.prod(sides), *hidden, classes))


@checked
def cnn(
    shape: Widths,
    classes: Count,
    channels: Widths = (32, 64),
    kernel: Count = 3,
    pool: Literal["each", "last"] = "each",
    hidden: Widths = (128,),
) -> Model:
    """Convolutions, 2x2 max pooling after "each" or the "last" of them, then a perceptron.

    OCFL's on MNIST: (10, 20) k5, 50. CIFAR-10 in all papers: (6, 16) k5, 120-84. DCFL's: (6, 16)
    k5, 256. Joint's on grey images: (32, 64) k3, pool="last", 128.

    >>> cnn((1, 28, 28), classes=10, channels=(10, 20), kernel=5, hidden=(50,)).size
    21840
    """
    check_widths(shape=shape, channels=channels, hidden=hidden)
    require(len(shape) == 3, f"shape={shape}: must be (channels, height, width), e.g. (1, 28, 28)")
    require(len(channels) > 0, "channels=(): must name at least one convolution, e.g. (32, 64)")
    build = partial(build_cnn, tuple(shape), classes, tuple(channels), kernel, pool, tuple(hidden))
    name = f"cnn{tuple(channels)} k{kernel} pool {pool} {tuple(hidden)}"
    model = Model(build, tuple(shape), classes, name=name)
    flat = next(part for named, part, *_ in model.layout if len(part) == 2)[1]
    dense, blocks = (flat, *hidden, classes), (shape[0], *channels)
    return replace(model, dense=dense, blocks=blocks, kernel=kernel, pool=pool)


def check_widths(**given: Widths) -> None:
    for name, widths in given.items():
        require(isinstance(widths, (tuple, list)), f"{name}={short(widths)}: must be a tuple")
        usable = [isinstance(w, Integral) and w is not True and 0 < w <= WIDEST for w in widths]
        require(all(usable), f"{name}={short(widths)}: must be whole numbers from 1 to {WIDEST:,}")
