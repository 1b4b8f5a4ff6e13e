"""Who holds what: one data set in, a Federation with ground-truth groups out.

Every partitioner first makes index lists, one per client, then gathers and normalises the images once. The same seed
gives the same split on any machine. All but `dirichlet_rotated` take these options:

- `holdout`: this share of the training half becomes the test half. None: the data's own test half, or a fifth of the
  data where there is none;
- `validation`: this share of each client's training samples is kept for validation;
- `limit`: at most so many training samples per client, a random subset, for reduced runs.

Held-out images of a class are divided among the clients that hold the class, by how much of it they hold: each client
is tested on its own distribution, and a cluster's clients together on the held-out images with their labels. No sample
is held twice, except by the "code" generator of `iid_mix`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fedclust.datasets import Dataset
from fedclust.fast.pixels import normalised
from fedclust.federation import Federation
from fedclust.rng import numpy_stream, stream

__all__ = [
    "class_counts", "class_groups", "class_table", "consecutive", "dirichlet_rotated", "draw_table", "iid", "iid_mix",
    "iid_mix_counts", "label_slices", "turn",
]  # fmt: skip

Index = NDArray[np.int64]
Weights = NDArray[np.float64]


class Options(TypedDict, total=False):
    """What (almost) every partitioner takes."""

    holdout: float | None
    validation: float
    limit: int | None


# joint, fig. 2: samples of each class (columns) in each cluster (rows)
TABLES = {name: [[int(n) for n in row.split()] for row in rows] for name, rows in {
    "mnist": ["1500 1500 1500 2000 1500 2000 1500    0 6000    0", "1500 1500 1500 2000 1500    0 1500 2000    0 3000",
              "1500 1500 1500    0 1500 2000 1500 2000    0 3000", "1500 1500 1500 2000 1500 2000 1500 2000    0    0"],
    "fashion_mnist":
             ["1500 1500 1500 2000 1500    0 1500    0 2000 3000", "1500 1500 1500    0 1500 3000 1500 3000 2000    0",
              "1500 1500 1500 2000 1500    0 1500 3000 2000    0", "1500 1500 1500 2000 1500 3000 1500    0    0 3000"],
    "cifar10":
             ["1250 1250 1250 1250 1666    0 2500 1666    0 1666", "1250 1250 1250 1250    0 1666    0 1667 2500 1667",
              "1250 1250 1250 1250 1667 1667 2500    0 2500    0", "1250 1250 1250 1250 1667 1667    0 1667    0 1667"],
}.items()}  # fmt: skip
GENERATORS = {"paper": (2, 4), "code": (1, 2), "shards": (1, 9)}  # of iid_mix, and the classes they give a client


def iid(data: Dataset, clients: int, *, seed: int = 0, **options: Unpack[Options]) -> Federation:
    """Every client an equal random share; one group.

    >>> from fedclust.datasets import load
    >>> fed = iid(load("glyphs", n=100, n_test=20), clients=5, seed=0)
    >>> len(fed), fed.sizes.tolist()
    (5, [20, 20, 20, 20, 20])
    """
    return class_groups(data, clients, 1, seed=seed, **options)


def label_slices(
    data: Dataset, clients: int, slices_per_client: int = 2, *, seed: int = 0, **options: Unpack[Options]
) -> Federation:
    """Sorted by label, cut into equal slices, each client gets some of them at random (McMahan et al. 2017; OCFL).

    A group is the clients whose slices have the same set of majority labels; with one slice, the label itself.

    >>> from fedclust.datasets import load
    >>> fed = label_slices(load("glyphs", n=1000, n_test=100), clients=20, slices_per_client=1)
    >>> [labels.unique().tolist() == [group] for labels, group in zip(fed.y, fed.group)] == [True] * 20
    True
    """
    (y, y_test), slices = _labels(data, seed, **options), clients * slices_per_client
    rng = numpy_stream(seed, "label_slices")
    _demand(min(clients, slices_per_client) >= 1 and slices <= len(y),
            f"clients={clients}, slices_per_client={slices_per_client}: {slices} slices of {len(y)} training samples; "
            f"ask for 1 to {len(y)} slices in total")  # fmt: skip
    order = rng.permutation(len(y))
    cut = np.array_split(order[y[order].argsort(kind="stable")], slices)
    deal = rng.permutation(slices).reshape(clients, slices_per_client)
    train = [np.concatenate([cut[j] for j in mine]) for mine in deal]
    test = _spread(y_test, _counts(y, train, len(data.classes)), np.arange(clients), rng)
    major = np.array([np.bincount(y[part]).argmax() for part in cut])[deal]  # (N, k)
    held = (major[:, :, None] == np.arange(len(data.classes))).any(1)  # (N, k) -> (N, classes)
    group = np.unique(held, axis=0, return_inverse=True)[1].reshape(-1) if slices_per_client > 1 else major[:, 0]
    return _gather(data, train, test, group, seed, **options)


def dirichlet_rotated(
    data: Dataset, clients: int, *, alpha: float = 1.0, samples: int = 1000, test_share: float = 0.2,
    rotate: bool = True, seed: int = 0, limit: int | None = None,
) -> Federation:  # fmt: skip
    """DCFL: the labels are divided by a Dirichlet, each client's images are turned by its own angle in U[0, 360).

    The halves of the data are pooled and every client gets `samples` images, of which `test_share` are its test half.
    For each label a Dirichlet(alpha) says which share of it goes to which client; one client after another then draws
    its images among those still free, each image weighing as much as the client's share of its label. While the data
    are plentiful that is the same as dividing all of them and keeping `samples` per client; where a client's labels run
    short it takes others. Every client is a group of its own.

    >>> from fedclust.datasets import load
    >>> fed = dirichlet_rotated(load("glyphs", n=400, n_test=100), clients=3, samples=50)
    >>> fed.x.shape, fed.x_test.shape, fed.angle.shape
    (torch.Size([3, 40, 1, 28, 28]), torch.Size([3, 10, 1, 28, 28]), torch.Size([3]))
    """
    data, rng = data.pooled(), numpy_stream(seed, "dirichlet_rotated")
    y, tests = data.y.numpy(), round(samples * test_share)
    _demand(alpha > 0, f"alpha={alpha}: a Dirichlet needs alpha > 0; 0.1 is very skewed, 100 nearly even")
    _demand(0 < tests < samples, f"samples={samples}, test_share={test_share}: both halves need at least one sample")
    _demand(1 <= clients <= len(y) // samples,
            f"clients={clients}, samples={samples}: {len(y)} images are enough for 1 to {len(y) // samples} clients of "
            "this size; ask for fewer of either")  # fmt: skip
    shares = rng.dirichlet(np.full(clients, alpha), len(data.classes)).T.clip(1e-100)  # (N, classes)
    free, lists = np.ones(len(y), bool), []
    for share in shares:
        wait = np.where(free, rng.exponential(size=len(y)) / share[y], np.inf)  # the shortest waits: a weighted draw
        lists.append(rng.permutation(wait.argsort()[:samples]))
        free[lists[-1]] = False
    train, test = [mine[tests:] for mine in lists], [mine[:tests] for mine in lists]
    fed = _gather(replace(data, x_test=data.x, y_test=data.y), train, test, np.arange(clients), seed, limit=limit)
    if not rotate:
        return fed
    angle = torch.rand(clients, generator=stream(seed, "angle")) * 360
    black = -torch.tensor(data.mean).div(torch.tensor(data.std)).expand(clients, -1)
    x, x_test = turn(fed.x, angle, black), turn(fed.x_test, angle, black)
    return replace(fed, x=x, x_test=x_test, upright=fed.x, upright_test=fed.x_test, angle=angle, black=black)


def turn(x: Tensor, angle: Tensor, black: Tensor) -> Tensor:
    """Client i's images turned by ``angle[i]`` degrees, counter-clockwise; bilinear, the empty corners are black.

    `black` is (N, c): what a pixel of 0 became when the images were normalised.
    """
    n, m, c, h, w = x.shape
    cos, sin, none = angle.deg2rad().cos(), angle.deg2rad().sin(), torch.zeros_like(angle)
    back = torch.stack([cos, -sin * h / w, none, sin * w / h, cos, none], 1).view(n, 2, 3).to(x.dtype)
    grid = affine_grid(back, [n, 1, h, w], align_corners=False)  # one for all images of a client
    black = black.view(n, 1, -1, 1, 1)
    return grid_sample((x - black).view(n, m * c, h, w), grid, align_corners=False).view_as(x) + black


def class_table(
    data: Dataset, table: ArrayLike | None = None, *, devices: int | None = None, relabel: bool = True, seed: int = 0,
    **options: Unpack[Options],
) -> Federation:  # fmt: skip
    """joint: clusters by a table (K, classes) of samples per cluster and class; the clusters are the groups.

    A column is scaled to what its class really has: MNIST's classes do not hold 6,000 images each, so 1,500 of 6,000
    means a quarter. A cluster's samples are spread evenly and at random over its devices. By default the table is the
    paper's for these data (a stand-in takes the table of what it stands for; EMNIST's, 8 clusters with 40 of 47
    classes, is drawn from the seed), and the devices are 20 per cluster, 200 for EMNIST. `relabel` numbers a cluster's
    labels anew by rank, so that models have as many outputs as a cluster has classes.
    """
    name, classes = data.stand_in or data.name, len(data.classes)
    hint = f"pass table= with {classes} columns, e.g. draw_table({classes}, 4, {max(classes - 2, 1)})"
    if table is None:
        known = [*TABLES, "emnist"]
        _demand(name in known, f"no table for {name!r}, only for {', '.join(known)}: {hint}")
        table = draw_table(47, 8, 40, seed) if name == "emnist" else TABLES[name]
        devices = 200 if devices is None and name == "emnist" else devices
    counts = np.asarray(table, float)
    _demand(counts.ndim == 2 and counts.shape[1] == classes,
            f"the table has shape {counts.shape}, but {data.name!r} has {classes} classes: this is a table for another "
            f"data set; {hint}")  # fmt: skip
    _demand((counts >= 0).all() and counts.any(1).all(), "table: counts must be >= 0, and every row needs one above 0")
    fed = _by_table(data, counts, 20 * len(counts) if devices is None else devices, "devices", seed, **options)
    if not relabel:
        return fed
    rank, new = torch.from_numpy((counts > 0).cumsum(1) - 1), {}  # (K, classes)
    for half in ("train", "val", "test") if options.get("validation") else ("train", "test"):
        _, y, mask = fed.half(half)
        new["y" if half == "train" else f"y_{half}"] = torch.where(mask, rank[fed.group].gather(1, y), 0)
    return replace(fed, classes=int((counts > 0).sum(1).max()), **new)


def draw_table(classes: int, clusters: int, each: int, seed: int = 0) -> Weights:
    """A table like joint's: each cluster leaves out some classes; a class is divided evenly where it is held."""
    _demand(1 <= each <= classes, f"each={each}: must be between 1 and classes={classes}")
    lots = numpy_stream(seed, "draw_table").random((clusters, classes))
    return (lots.argsort(1).argsort(1) < each).astype(float)


def consecutive(groups: int, classes: int = 10) -> list[list[int]]:
    """FedAC's clusters: consecutive classes, as equal as can be, the smaller first (5+5; 3+3+4; 2+2+3+3).

    >>> consecutive(4)
    [[0, 1], [2, 3], [4, 5, 6], [7, 8, 9]]
    """
    _demand(1 <= groups <= classes, f"groups={groups}: must be between 1 and the {classes} classes")
    sizes = sorted(len(part) for part in np.array_split(np.arange(classes), groups))
    return [part.tolist() for part in np.split(np.arange(classes), np.cumsum(sizes)[:-1])]


def class_groups(
    data: Dataset, clients: int = 100, groups: int | Sequence[Sequence[int]] = 2, *, seed: int = 0,
    **options: Unpack[Options],
) -> Federation:  # fmt: skip
    """FedAC: the clients are divided over groups of classes, a group's samples evenly and at random over its clients.

    `groups` may be a number, for `consecutive` classes; 1 is IID.

    >>> from fedclust.datasets import load
    >>> fed = class_groups(load("glyphs", n=1000, n_test=100), clients=4, groups=2)
    >>> [sorted(labels[real].unique().tolist()) for labels, real in zip(fed.y, fed.mask)][:2], fed.group.tolist()
    ([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]], [0, 0, 1, 1])
    """
    everything = np.arange(len(data.classes))
    groups = consecutive(groups, len(everything)) if isinstance(groups, int) else groups
    for held in groups:
        _demand(len(held) > 0 and set(held) <= set(everything),
                f"groups: {list(held)} must be one or more of the classes 0 to {everything[-1]}")  # fmt: skip
    table = np.array([np.isin(everything, held) for held in groups], float)
    return _by_table(data, table, clients, "clients", seed, **options)


def iid_mix(
    data: Dataset, iid: int = 5, other: int = 15, *, generator: str = "paper",
    classes_per_client: tuple[int, int] | None = None, test: str = "global", seed: int = 0, validation: float = 0.2,
    holdout: float | None = None, limit: int | None = None,
) -> Federation:  # fmt: skip
    """CAFA: `iid` clients with an equal random share each, `other` clients with few classes.

    generator="paper": 2-4 classes each, random amounts: a client's weight is drawn from 10-100 and spread evenly over
    its classes, and every class is divided among its holders by weight. Classes nobody has yet are drawn first.
    "code": 1-2 classes in Dirichlet(0.5) proportions, all clients of one size; drawn anew for each client, so that
    samples may stand with several of them (the authors' repository, tables 2-3).
    "shards": each class is cut into equal shards; a client takes 1-9, from the classes with most shards left (the
    authors' repository, training). CAFA's training split has iid=0, other=20.

    test="global" gives every client an equal random share of the test half: the mean over clients is then the accuracy
    of a global model. "own" follows the client's distribution. Group 0 is the IID clients; the others stand alone.
    """
    _demand(test in ("global", "own"), f"test={test!r}: must be 'global' or 'own'")
    (y, y_test), classes, own = _labels(data, seed, holdout), len(data.classes), test == "own"
    train, group = _mix(y, classes, iid, other, generator, classes_per_client, seed)
    table = _counts(y, train, classes) if own else np.ones((1, classes))
    spread = _spread(y_test, table, np.arange(len(group)) * own, numpy_stream(seed, "iid_mix", "test"))
    return _gather(data, train, spread, group, seed, validation=validation, limit=limit, holdout=holdout)


def iid_mix_counts(
    y: Tensor, iid: int = 5, other: int = 15, *, generator: str = "paper",
    classes_per_client: tuple[int, int] | None = None, seed: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Samples per client and class (N, classes), and the group, of `iid_mix` on labels `y`, without any image."""
    labels, classes = y.numpy(), int(y.max()) + 1
    lists, group = _mix(labels, classes, iid, other, generator, classes_per_client, seed)
    return torch.from_numpy(_counts(labels, lists, classes)).long(), torch.from_numpy(group)


def class_counts(fed: Federation, half: str = "train") -> Tensor:
    """Samples per client and class, (N, classes)."""
    _, y, mask = fed.half(half)
    return torch.zeros(len(fed), fed.classes, dtype=torch.long).scatter_add_(1, y.cpu(), mask.cpu().long())


def _mix(
    y: Index, classes: int, iid: int, other: int, generator: str, per_client: tuple[int, int] | None, seed: int
) -> tuple[list[Index], Index]:
    _demand(generator in GENERATORS, f"generator={generator!r}: must be one of {', '.join(GENERATORS)}")
    _demand(min(iid, other) >= 0 and 1 <= iid + other <= len(y), _range("iid + other", iid + other, 1, len(y)))
    low, high = per_client or GENERATORS[generator]
    _demand(1 <= low <= high <= classes, f"classes_per_client={low, high}: must lie between 1 and {classes}, low first")
    rng, size = numpy_stream(seed, "iid_mix", generator), len(y) // (iid + other)
    order, kinds = rng.permutation(len(y)), rng.integers(low, high + 1, other)
    lists, rest = [order[i * size : (i + 1) * size] for i in range(iid)], order[iid * size :]
    if generator == "code":
        pools = [np.flatnonzero(y == c) for c in range(classes)]
        for k in kinds:
            share = np.maximum(np.rint(rng.dirichlet(np.full(k, 0.5)) * size).astype(int), 1)
            share[share.argmax()] += size - share.sum()
            take = list(zip(rng.choice(classes, k, replace=False), share, strict=True))
            for c, n in take:
                _demand(0 < n <= len(pools[c]), f"{n} of a client's {size} samples are asked of class {c}, which has "
                        f"{len(pools[c])}: ask for more clients (smaller ones), or use more data")  # fmt: skip
            lists.append(np.concatenate([rng.choice(pools[c], n, replace=False) for c, n in take]))
    elif other:
        weights = np.zeros((other, classes))  # who gets how much of the rest of each class
        if generator == "paper":
            for i, (k, amount) in enumerate(zip(kinds, rng.integers(10, 101, other), strict=True)):
                weights[i, (weights.any(0) + rng.random(classes)).argsort()[:k]] = amount / k
        else:
            spare = kinds.sum() - classes
            _demand(spare >= 0, f"{kinds.sum()} shards of {classes} classes: ask for more clients or classes for each")
            left = 1 + rng.multinomial(spare, np.full(classes, 1 / classes))
            for i in np.repeat(np.arange(other), kinds).tolist():  # a class that the client has comes last
                most = np.where(left > 0, left + rng.random(classes) - kinds.sum() * weights[i], -np.inf).argmax()
                weights[i, most] += 1
                left[most] -= 1
        lists += [rest[mine] for mine in _spread(y[rest], weights, np.arange(other), rng)]
    return lists, np.concatenate([np.zeros(iid, np.int64), np.arange(1, other + 1)])


def _by_table(
    data: Dataset, table: Weights, clients: int, called: str, seed: int, **options: Unpack[Options]
) -> Federation:
    labels, k = _labels(data, seed, **options), len(table)
    _demand(k <= clients <= len(labels[0]), _range(called, clients, k, len(labels[0])))
    group, rng = np.arange(clients) * k // clients, numpy_stream(seed, "by_table")
    train, test = (_spread(y, table, group, rng) for y in labels)
    return _gather(data, train, test, group, seed, **options)


def _spread(y: Index, table: Weights, group: Index, rng: np.random.Generator) -> list[Index]:
    """Each class to the groups in proportion to its column; a group's samples evenly and at random to its clients."""
    held: list[list[Index]] = [[np.empty(0, np.int64)] for _ in table]
    for c in np.flatnonzero(table.any(0)):
        mine = rng.permutation(np.flatnonzero(y == c))
        cuts = np.rint(table[:, c].cumsum() / table[:, c].sum() * len(mine)).astype(int)
        for parts, part in zip(held, np.split(mine, cuts[:-1]), strict=True):
            parts.append(part)
    clients: list[Index] = [np.empty(0, np.int64)] * len(group)
    for k, parts in enumerate(held):
        members = np.flatnonzero(group == k)
        pool = rng.permutation(np.concatenate(parts))
        for i, mine in zip(members, np.array_split(pool, len(members)), strict=True):
            clients[i] = mine
    return clients


def _gather(
    data: Dataset, train: Sequence[Index], test: Sequence[Index], group: Index, seed: int, validation: float = 0.0,
    limit: int | None = None, holdout: float | None = None,
) -> Federation:  # fmt: skip
    """The index lists' images, normalised, their labels, and which are real."""
    _demand(0 <= validation < 1, f"validation={validation}: a share, at least 0 and below 1")
    _demand(limit is None or limit >= 1, f"limit={limit}: training samples per client, at least 1, or None for all")
    rng = numpy_stream(seed, "gather")
    train = [rng.permutation(mine) for mine in train]
    cuts = [round(validation * len(mine)) for mine in train]
    halves = {"": [mine[n:][:limit] for mine, n in zip(train, cuts, strict=True)], "_test": test}
    if validation:
        halves["_val"] = [mine[:n] for mine, n in zip(train, cuts, strict=True)]
    empty = [i for i, mine in enumerate(halves[""]) if not len(mine)]
    _demand(not empty, f"clients {empty} would hold no training sample: ask for fewer clients or use more data")
    own, held_out = _halves(data, seed, holdout)
    parts: dict[str, Tensor] = {}
    for end, lists in halves.items():
        images, labels, which = held_out if end == "_test" else own
        shape = len(lists), max(1, *map(len, lists))
        x, y, mask = torch.empty(*shape, *data.shape), torch.zeros(shape).long(), torch.zeros(shape).bool()
        for i, mine in enumerate(lists):
            at, n = torch.from_numpy(which[mine]), len(mine)
            normalised(images, at, data.mean, data.std, x[i, :n])
            x[i, n:], y[i, :n], mask[i, :n] = 0, labels[at], True
        parts |= {"x" + end: x, "y" + end: y, "mask" + end: mask}
    ids, classes = torch.arange(len(group)), len(data.classes)
    return Federation(**parts, group=torch.from_numpy(group).long(), ids=ids, classes=classes)


Half = tuple[Tensor, Tensor, Index]  # images, their labels, which of them


def _halves(data: Dataset, seed: int, holdout: float | None = None, **_: Any) -> tuple[Half, Half]:
    """For training and for testing."""
    if holdout is None and len(data.y_test):
        return (data.x, data.y, np.arange(len(data.y))), (data.x_test, data.y_test, np.arange(len(data.y_test)))
    share = 0.2 if holdout is None else holdout
    _demand(0 < share < 1, f"holdout={share}: a share of the training half, above 0 and below 1")
    order = numpy_stream(seed, "holdout").permutation(len(data.y))
    cut = round(share * len(order))
    return (data.x, data.y, order[cut:]), (data.x, data.y, order[:cut])


def _labels(data: Dataset, seed: int, holdout: float | None = None, **_: Any) -> list[Index]:
    return [labels.numpy()[which] for _, labels, which in _halves(data, seed, holdout)]


def _counts(y: Index, lists: Iterable[Index], classes: int) -> Weights:
    return np.array([np.bincount(y[mine], minlength=classes) for mine in lists], float)


def _range(name: str, value: int, least: int, most: int) -> str:
    return f"{name}={value}: must be between {least} and {most}: at least a client per group and a sample per client"


def _demand(ok: bool | np.bool_, text: str) -> None:
    if not ok:
        raise ValueError(text)
