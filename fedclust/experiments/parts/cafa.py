"""CAFA's clients, some with an equal random share, the others with few classes; and its VGG19."""

import math
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedclust.assembly import Index, Weights, assemble, class_shares, distribute, half_labels
from fedclust.checks import Count, Number, checked, require, whole
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.models import ChannelsLast, Model, Widths, check_widths, convolutional
from fedclust.rng import numpy_stream

__all__ = ["iid_mix", "iid_mix_counts", "vgg19"]

Generator = Literal["paper", "code", "shards", "contiguous"]
CLASSES_PER_CLIENT = {  # by generator
    "paper": (2, 4),
    "code": (1, 2),
    "shards": (1, 9),
    "contiguous": (2, 2),
}


@checked
def iid_mix(
    data: Dataset,
    iid: Number = 5,
    other: Number = 15,
    *,
    generator: Generator = "paper",
    classes_per_client: tuple[int, int] | None = None,
    test: Literal["global", "own"] = "global",
    seed: int = 0,
    **options: Any,
) -> Federation:
    """CAFA: `iid` clients with an equal random share each, and `other` clients with few classes.

    generator="paper": 2-4 classes each, random amounts. A client's weight is drawn from 10-100 and
    divided evenly among its classes, and every class is divided among its holders by weight. A
    class that nobody has yet is drawn first.
    "code": 1-2 classes in Dirichlet(0.5) proportions, all clients of one size, drawn anew for each
    client, so that several may hold one sample (the authors' repository, tables 2-3).
    "shards": each class is cut into equal shards; a client takes 1-9, from the classes with most
    shards left (the authors' repository, training). CAFA's training split has iid=0, other=20.
    "contiguous": random amounts, half of it from a random class and half from the next; where a
    class has run out the one after it follows, so that two classes become two to four (the authors'
    repository, its split with few classes).

    test="global" gives every client an equal random share of the test half: the mean over clients
    is then the accuracy of a global model. "own" follows the client's distribution. Group 0 is the
    IID clients; each of the others is a group of its own. `validation` is 0.2 unless given.
    """
    y, y_test = half_labels(data, seed, **options)
    classes, own = len(data.classes), test == "own"
    train, group = mixed(y, classes, iid, other, generator, classes_per_client, seed)
    table = class_shares(y, train, classes) if own else np.ones((1, classes))
    rng = numpy_stream(seed, "iid_mix", "test")
    tests = distribute(y_test, table, np.arange(len(group)) * own, rng)
    return assemble(data, train, tests, group, seed, **{"validation": 0.2, **options})


@checked
def iid_mix_counts(
    y: Tensor,
    iid: Number = 5,
    other: Number = 15,
    *,
    generator: Generator = "paper",
    classes_per_client: tuple[int, int] | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Samples per client and class (N, classes), and the group, of `iid_mix` on labels `y`."""
    labels, classes = y.numpy(), int(y.max()) + 1
    lists, group = mixed(labels, classes, iid, other, generator, classes_per_client, seed)
    counts = torch.from_numpy(class_shares(labels, lists, classes)).long()
    return counts, torch.from_numpy(group)


def mixed(
    y: Index,
    classes: int,
    iid: Number,
    other: Number,
    generator: Generator,
    per_client: tuple[int, int] | None,
    seed: int,
) -> tuple[list[Index], Index]:
    """Sample positions per client, and the groups, of `partition.iid_mix`."""
    require(
        1 <= iid + other <= len(y),
        f"iid={iid}, other={other}: there must be 1 to {len(y)} clients in all, one per sample",
    )
    low, high = per_client or CLASSES_PER_CLIENT[generator]
    whole(f"[1, {classes}]", fewest_classes=low, most_classes=high)
    require(low <= high, f"classes_per_client={low, high}: the smaller number comes first")
    rng, size = numpy_stream(seed, "iid_mix", generator), len(y) // (iid + other)
    order, numbers = rng.permutation(len(y)), rng.integers(low, high + 1, other)
    lists, rest = [order[i * size : (i + 1) * size] for i in range(iid)], order[iid * size :]
    if generator == "code":
        lists += [few_classes(y, classes, n, size, rng) for n in numbers]
    elif generator == "contiguous":
        lists += [rest[mine] for mine in neighbouring_classes(y[rest], classes, numbers, rng)]
    elif other:
        weigh = paper_weights if generator == "paper" else shard_weights
        weights = weigh(numbers, classes, rng)
        lists += [rest[mine] for mine in distribute(y[rest], weights, np.arange(other), rng)]
    return lists, np.concatenate([np.zeros(iid, np.int64), np.arange(1, other + 1)])


def few_classes(y: Index, classes: int, number: int, size: int, rng: np.random.Generator) -> Index:
    """CAFA's "code": `size` samples of `number` random classes, in Dirichlet(0.5) proportions."""
    amounts = np.maximum(np.rint(rng.dirichlet(np.full(number, 0.5)) * size).astype(int), 1)
    amounts[amounts.argmax()] += size - amounts.sum()
    held = list(zip(rng.choice(classes, number, replace=False), amounts, strict=True))
    pools = {c: np.flatnonzero(y == c) for c, _ in held}
    for c, n in held:
        require(
            0 < n <= len(pools[c]),
            f"{n} of a client's {size} samples are asked of class {c}, which has {len(pools[c])}: "
            "ask for more (so smaller) clients, or use more data",
        )
    return np.concatenate([rng.choice(pools[c], n, replace=False) for c, n in held])


def paper_weights(numbers: Index, classes: int, rng: np.random.Generator) -> Weights:
    """CAFA's "paper": each client's weight in each class, (clients, classes)."""
    weights = np.zeros((len(numbers), classes))
    amounts = rng.integers(10, 101, len(numbers))
    for i, (n, amount) in enumerate(zip(numbers, amounts, strict=True)):
        held = (weights.any(0) + rng.random(classes)).argsort()[:n]  # classes of nobody come first
        weights[i, held] = amount / n
    return weights


def shard_weights(numbers: Index, classes: int, rng: np.random.Generator) -> Weights:
    """CAFA's "shards": each client's number of shards of each class, (clients, classes)."""
    total = numbers.sum()
    require(
        total >= classes,
        f"{total} shards of {classes} classes: ask for more clients or more classes per client",
    )
    weights = np.zeros((len(numbers), classes))
    left = 1 + rng.multinomial(total - classes, np.full(classes, 1 / classes))
    for i in np.repeat(np.arange(len(numbers)), numbers).tolist():
        wish = left + rng.random(classes) - total * weights[i]  # a class it has comes last
        most = np.where(left > 0, wish, -np.inf).argmax()
        weights[i, most] += 1
        left[most] -= 1
    return weights


def neighbouring_classes(
    y: Index, classes: int, numbers: Index, rng: np.random.Generator
) -> list[Index]:
    """CAFA's "contiguous": random budgets that use up all samples, from a random class onwards."""
    pools = [rng.permutation(np.flatnonzero(y == c)) for c in range(classes)]
    ends = rng.integers(10, 101, len(numbers)).cumsum()
    budgets = np.diff(np.rint(ends / max(ends, default=1) * len(y)).astype(int), prepend=0)
    lists = []
    for budget, number in zip(budgets.tolist(), numbers.tolist(), strict=True):
        share, c, mine = math.ceil(budget / number), int(rng.integers(classes)), []
        while budget > 0:  # a class that has run out gives nothing, the next one more
            taken, pools[c] = np.split(pools[c], [min(share, budget)])
            mine.append(taken)
            budget, c = budget - len(taken), (c + 1) % classes
        lists.append(np.concatenate(mine))
    return lists


def torchvision_vgg() -> Any:
    """torchvision's VGG. Its plain wheel cannot be imported with a CPU build of torch, unless two
    operators that no network uses are declared first."""
    try:
        from torchvision.models import vgg
    except RuntimeError:
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", schema)
        from torchvision.models import vgg
    return vgg


def build_vgg19(shape: Widths, classes: int, width: float) -> nn.Module:
    vgg = torchvision_vgg()
    channels = [c if c == "M" else round(c * width) for c in vgg.cfgs["E"]]
    features = vgg.make_layers(channels, batch_norm=True)
    top, places = round(512 * width), (shape[1] // 32) * (shape[2] // 32)
    layers = list(features) if width >= 1 else [ChannelsLast(), *features]
    return convolutional(layers, (top * places, top, top, classes))


@checked
def vgg19(
    shape: Widths = (3, 32, 32),
    classes: Count = 10,
    width: Annotated[float, "[0.015625, 4]"] = 1.0,  # 1/64: one channel in the first layer
) -> Model:
    """VGG19 with batch norm, CAFA's head 512-512-512-classes; `width` scales every layer."""
    check_widths(shape=shape)
    require(
        len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= 32,
        f"shape={shape}: VGG19 needs 3 colours and at least 32 x 32 pixels, e.g. (3, 32, 32)",
    )
    build, name = partial(build_vgg19, tuple(shape), classes, width), f"vgg19 x{width:g}"
    return Model(build, tuple(shape), classes, name=name)
