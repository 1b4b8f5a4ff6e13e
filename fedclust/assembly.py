"""From lists of sample positions to a federation: what all partitioners share."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedclust.checks import Count, Open, checked, require, whole
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.rng import numpy_stream

Index = NDArray[np.int64]
Weights = NDArray[np.float64]
Half = tuple[Tensor, Tensor, Index]  # images, their labels, which of them


@checked
def data_halves(data: Dataset, seed: int, holdout: Open | None) -> tuple[Half, Half]:
    """What is for training and what is for testing."""
    if holdout is None and len(data.y_test):
        tests = data.x_test, data.y_test, np.arange(len(data.y_test))
        return (data.x, data.y, np.arange(len(data.y))), tests
    order = numpy_stream(seed, "holdout").permutation(len(data.y))
    cut = round((0.2 if holdout is None else holdout) * len(order))
    return (data.x, data.y, order[cut:]), (data.x, data.y, order[:cut])


def half_labels(data: Dataset, seed: int, holdout: float | None = None, **_: Any) -> list[Index]:
    """The labels of the training and of the test half."""
    return [y.numpy()[which] for _, y, which in data_halves(data, seed, holdout)]


def class_shares(y: Index, lists: Iterable[Index], classes: int) -> Weights:
    """How often each list has each class, (lists, classes)."""
    return np.array([np.bincount(y[mine], minlength=classes) for mine in lists], float)


def groups_of(clients: int, k: int, samples: int, name: str = "clients") -> Index:
    """The group of each client, equally many in each of k; `name` is the clients' in errors."""
    whole("[0, inf)", **{name: clients})
    require(
        k <= clients <= samples,
        f"{name}={clients}: must be between {k} (one per group) and {samples} (one per sample)",
    )
    return np.arange(clients) * k // clients


def distribute(y: Index, table: Weights, group: Index, rng: np.random.Generator) -> list[Index]:
    """Positions per client: each class by its column of the table (K, classes), then evenly."""
    held: list[list[Index]] = [[np.empty(0, np.int64)] for _ in table]
    for c in np.flatnonzero(table.any(0)):
        pool = rng.permutation(np.flatnonzero(y == c))
        cuts = np.rint(table[:, c].cumsum() / table[:, c].sum() * len(pool)).astype(int)
        for parts, part in zip(held, np.split(pool, cuts[:-1]), strict=True):
            parts.append(part)
    clients: list[Index] = [np.empty(0, np.int64)] * len(group)
    for k, parts in enumerate(held):
        members, pool = np.flatnonzero(group == k), rng.permutation(np.concatenate(parts))
        for i, mine in zip(members, np.array_split(pool, len(members)), strict=True):
            clients[i] = mine
    return clients


def by_table(
    data: Dataset, table: Weights, clients: int, name: str, seed: int, **options: Any
) -> Federation:
    """Equally many clients for each row of the table (K, classes), called `name`."""
    labels, rng = half_labels(data, seed, **options), numpy_stream(seed, "by_table")
    group = groups_of(clients, len(table), len(labels[0]), name)
    train, test = (distribute(y, table, group, rng) for y in labels)
    return assemble(data, train, test, group, seed, **options)


@checked
def assemble(
    data: Dataset,
    train: Sequence[Index],
    test: Sequence[Index],
    group: Index,
    seed: int,
    *,
    validation: Annotated[float, "[0, 1)"] = 0.0,
    limit: Count | None = None,
    holdout: float | None = None,
) -> Federation:
    """The federation of these lists: normalised images, their labels, and which are real."""
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (data.mean, data.std))
    rng = numpy_stream(seed, "gather")
    train = [rng.permutation(mine) for mine in train]
    cuts = [round(validation * len(mine)) for mine in train]
    halves = {"": [mine[n:][:limit] for mine, n in zip(train, cuts, strict=True)], "_test": test}
    if validation:
        halves["_val"] = [mine[:n] for mine, n in zip(train, cuts, strict=True)]
    empty = [i for i, mine in enumerate(halves[""]) if not len(mine)]
    require(not empty, f"clients {empty} would have no sample: use fewer clients or more data")
    own, held_out = data_halves(data, seed, holdout)
    parts: dict[str, Tensor] = {}
    for end, lists in halves.items():
        images, labels, which = held_out if end == "_test" else own
        shape = len(lists), max(1, *map(len, lists))
        x = torch.empty(*shape, *data.shape)
        y, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
        for i, mine in enumerate(lists):
            at, n = torch.from_numpy(which[mine]), len(mine)
            torch.div(images[at], 255, out=x[i, :n]).sub_(mean).div_(std)
            x[i, n:], y[i, :n], mask[i, :n] = 0, labels[at], True
        parts |= {"x" + end: x, "y" + end: y, "mask" + end: mask}
    ids, groups = torch.arange(len(group)), torch.from_numpy(group).long()
    return Federation(**parts, group=groups, ids=ids, classes=len(data.classes))


def relabelled(fed: Federation, new: Tensor, classes: int) -> Federation:
    """Client i's label y becomes new[i, y], for `new` (N, old classes)."""
    labels: dict[str, Any] = {}
    for end in fed.ends:
        y, mask = getattr(fed, "y" + end), getattr(fed, "mask" + end)
        labels["y" + end] = torch.where(mask, new.gather(1, y), 0)
    return replace(fed, classes=classes, **labels)
