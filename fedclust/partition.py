"""Who holds what: one data set in, a Federation with ground-truth groups out.

Every partitioner first makes lists of sample positions, one per client, then copies and normalises
the images once. The same seed gives the same split on any machine. All but `dirichlet_rotated` take
these options:

- `holdout`: this share of the training half becomes the test half. None: the data's own test half,
  or a fifth of the data if it has none;
- `validation`: this share of each client's training samples is kept for validation;
- `limit`: at most this many training samples per client, a random subset, for reduced runs.

The test images of a class go to the clients that hold the class, by how much of it they hold: each
client is tested on its own distribution, and a cluster's clients together on all test images with
their labels. No sample is held twice, except by the "code" generator of `iid_mix`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedclust.assembly import (
    Weights,
    assemble,
    by_table,
    class_shares,
    distribute,
    half_labels,
)
from fedclust.checks import number, one_of, require, shown, whole
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.groups import label_swapped_groups, poisoned, rotated_groups
from fedclust.mixtures import mixed
from fedclust.rng import numpy_stream, stream
from fedclust.rotation import black_pixels, turn

__all__ = [
    "class_counts",
    "class_groups",
    "class_table",
    "consecutive",
    "dirichlet",
    "dirichlet_rotated",
    "draw_table",
    "iid",
    "iid_mix",
    "iid_mix_counts",
    "label_slices",
    "label_swapped_groups",
    "poisoned",
    "rotated_groups",
    "turn",
]

# joint, fig. 2: samples of each class (columns) in each cluster (rows)
ROWS = {
    "mnist": """1500 1500 1500 2000 1500 2000 1500    0 6000    0
                1500 1500 1500 2000 1500    0 1500 2000    0 3000
                1500 1500 1500    0 1500 2000 1500 2000    0 3000
                1500 1500 1500 2000 1500 2000 1500 2000    0    0""",
    "fashion_mnist": """1500 1500 1500 2000 1500    0 1500    0 2000 3000
                        1500 1500 1500    0 1500 3000 1500 3000 2000    0
                        1500 1500 1500 2000 1500    0 1500 3000 2000    0
                        1500 1500 1500 2000 1500 3000 1500    0    0 3000""",
    "cifar10": """1250 1250 1250 1250 1666    0 2500 1666    0 1666
                  1250 1250 1250 1250    0 1666    0 1667 2500 1667
                  1250 1250 1250 1250 1667 1667 2500    0 2500    0
                  1250 1250 1250 1250 1667 1667    0 1667    0 1667""",
}
TABLES = {
    name: [[int(count) for count in row.split()] for row in rows.splitlines()]
    for name, rows in ROWS.items()
}


def iid(data: Dataset, clients: int, *, seed: int = 0, **options: Any) -> Federation:
    """Every client has an equal random share; one group.

    >>> from fedclust.datasets import load
    >>> fed = iid(load("glyphs", n=100, n_test=20), clients=5, seed=0)
    >>> len(fed), fed.sizes.tolist()
    (5, [20, 20, 20, 20, 20])
    """
    return class_groups(data, clients, 1, seed=seed, **options)


def label_slices(
    data: Dataset, clients: int, slices_per_client: int = 2, *, seed: int = 0, **options: Any
) -> Federation:
    """Sort by label, cut into equal slices, give each client some at random (McMahan 2017; OCFL).

    Clients are in one group if their slices have the same set of majority labels. With one slice
    per client the group is that label.

    >>> from fedclust.datasets import load
    >>> fed = label_slices(load("glyphs", n=1000, n_test=100), clients=20, slices_per_client=1)
    >>> all(y.unique().tolist() == [group] for y, group in zip(fed.y, fed.group))
    True
    """
    whole("[1, inf)", clients=clients, slices_per_client=slices_per_client)
    (y, y_test), slices = half_labels(data, seed, **options), clients * slices_per_client
    rng = numpy_stream(seed, "label_slices")
    require(
        slices <= len(y),
        f"clients={clients}, slices_per_client={slices_per_client}: {slices} slices of {len(y)} "
        f"training samples; ask for 1 to {len(y)} slices in total",
    )
    order = rng.permutation(len(y))
    cut = np.array_split(order[y[order].argsort(kind="stable")], slices)
    deal = rng.permutation(slices).reshape(clients, slices_per_client)
    train = [np.concatenate([cut[j] for j in mine]) for mine in deal]
    classes = len(data.classes)
    test = distribute(y_test, class_shares(y, train, classes), np.arange(clients), rng)
    major = np.array([np.bincount(y[part]).argmax() for part in cut])[deal]  # (N, slices)
    if slices_per_client == 1:
        return assemble(data, train, test, major[:, 0], seed, **options)
    held = (major[:, :, None] == np.arange(classes)).any(1)  # (N, slices) -> (N, classes)
    group = np.unique(held, axis=0, return_inverse=True)[1].reshape(-1)
    return assemble(data, train, test, group, seed, **options)


def dirichlet(
    data: Dataset, clients: int, alpha: float = 0.5, *, seed: int = 0, **options: Any
) -> Federation:
    """Label skew without groups: a Dirichlet(alpha) draws each client's class mix; one group.

    >>> from fedclust.datasets import load
    >>> fed = dirichlet(load("glyphs", n=400, n_test=100), clients=5, alpha=1, limit=20)
    >>> fed.group.tolist(), int(fed.sizes.max())
    ([0, 0, 0, 0, 0], 20)
    """
    number("(0, inf)", alpha=alpha)  # 0.1 is very skewed, 100 nearly even
    whole("[1, inf)", clients=clients)
    rng, classes = numpy_stream(seed, "dirichlet"), len(data.classes)
    table = rng.dirichlet(np.full(classes, alpha), clients).clip(1e-100)  # (N, classes)
    fed = by_table(data, table, clients, "clients", seed, **options)
    return replace(fed, group=torch.zeros_like(fed.group))


def dirichlet_rotated(
    data: Dataset,
    clients: int,
    *,
    alpha: float = 1.0,
    samples: int = 1000,
    test_share: float = 0.2,
    rotate: bool = True,
    seed: int = 0,
    limit: int | None = None,
) -> Federation:
    """DCFL: a Dirichlet divides the labels, and each client turns its images by its own angle.

    The halves of the data are pooled and every client gets `samples` images, of which `test_share`
    are its test half. For each label a Dirichlet(alpha) draws the clients' shares. One client after
    another then draws its images among those still free, and each image weighs as much as the
    client's share of its label. While there is plenty of data that is the same as dividing all of
    them and keeping `samples` per client; when a client's labels run short it takes others. Angles
    are uniform in [0, 360). Every client is a group of its own.

    >>> from fedclust.datasets import load
    >>> fed = dirichlet_rotated(load("glyphs", n=400, n_test=100), clients=3, samples=50)
    >>> fed.x.shape, fed.x_test.shape, fed.angle.shape
    (torch.Size([3, 40, 1, 28, 28]), torch.Size([3, 10, 1, 28, 28]), torch.Size([3]))
    """
    number("(0, inf)", alpha=alpha)  # 0.1 is very skewed, 100 nearly even
    number("(0, 1)", test_share=test_share)
    whole("[2, inf)", samples=samples)
    whole("[1, inf)", clients=clients)
    data, rng = data.pooled(), numpy_stream(seed, "dirichlet_rotated")
    y, tests = data.y.numpy(), round(samples * test_share)
    require(
        0 < tests < samples,
        f"samples={samples}, test_share={test_share}: each half needs at least one sample",
    )
    require(
        clients <= len(y) // samples,
        f"clients={clients}, samples={samples}: {len(y)} images are enough for 1 to "
        f"{len(y) // samples} clients of this size; ask for fewer of either",
    )
    shares = rng.dirichlet(np.full(clients, alpha), len(data.classes)).T.clip(1e-100)
    free, lists = np.ones(len(y), bool), []
    for share in shares:  # (classes,) of one client
        wait = rng.exponential(size=len(y)) / share[y]
        mine = np.where(free, wait, np.inf).argsort()[:samples]  # shortest waits: a weighted draw
        lists.append(rng.permutation(mine))
        free[mine] = False
    train, test = [mine[tests:] for mine in lists], [mine[:tests] for mine in lists]
    pooled = replace(data, x_test=data.x, y_test=data.y)
    fed = assemble(pooled, train, test, np.arange(clients), seed, limit=limit)
    if not rotate:
        return fed
    angle = torch.rand(clients, generator=stream(seed, "angle")) * 360
    black = black_pixels(data.mean, data.std, clients)
    return replace(
        fed,
        x=turn(fed.x, angle, black),
        x_test=turn(fed.x_test, angle, black),
        upright=fed.x,
        upright_test=fed.x_test,
        angle=angle,
        black=black,
    )


def class_table(
    data: Dataset,
    table: ArrayLike | None = None,
    *,
    devices: int | None = None,
    relabel: bool = True,
    seed: int = 0,
    **options: Any,
) -> Federation:
    """joint: a table (K, classes) of samples per cluster and class; the clusters are the groups.

    A column is scaled to what its class really has: MNIST's classes do not hold 6,000 images each,
    so 1,500 of 6,000 means a quarter. A cluster's samples are divided evenly and at random among
    its devices. By default the table is the paper's for this data set (stand-in data take the table
    of the original; EMNIST's, 8 clusters with 40 of 47 classes, is drawn from the seed), and there
    are 20 devices per cluster, 200 for EMNIST. `relabel` numbers a cluster's labels anew by rank,
    so that models need as many outputs as a cluster has classes.
    """
    name, classes = data.stand_in or data.name, len(data.classes)
    hint = (
        f"pass table= with {classes} columns, e.g. draw_table({classes}, 4, {max(classes - 2, 1)})"
    )
    if table is None:
        known = [*TABLES, "emnist"]
        require(name in known, f"no table for {name!r}, only for {', '.join(known)}: {hint}")
        table = draw_table(47, 8, 40, seed) if name == "emnist" else TABLES[name]
        devices = 200 if devices is None and name == "emnist" else devices
    try:
        counts = np.asarray(table, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"table={shown(table)}: must be rows of numbers, {hint}") from error
    require(
        counts.ndim == 2 and counts.shape[1] == classes,
        f"table has shape {counts.shape}, but {data.name!r} has {classes} classes: {hint}",
    )
    require(
        np.isfinite(counts).all() and (counts >= 0).all() and counts.any(1).all(),
        "table: counts must be at least 0, and every row needs one above 0",
    )
    devices = 20 * len(counts) if devices is None else devices
    fed = by_table(data, counts, devices, "devices", seed, **options)
    if not relabel:
        return fed
    rank = torch.from_numpy((counts > 0).cumsum(1) - 1)[fed.group]  # (N, classes)
    new: dict[str, Any] = {"classes": int((counts > 0).sum(1).max())}
    for end in ("", "_val", "_test") if options.get("validation") else ("", "_test"):
        y, mask = getattr(fed, "y" + end), getattr(fed, "mask" + end)
        new["y" + end] = torch.where(mask, rank.gather(1, y), 0)
    return replace(fed, **new)


def draw_table(classes: int, clusters: int, each: int, seed: int = 0) -> Weights:
    """A table like joint's: each cluster has `each` random classes, a class is divided evenly."""
    whole("[1, inf)", classes=classes, clusters=clusters)
    whole(f"[1, {classes}]", each=each)
    lots = numpy_stream(seed, "draw_table").random((clusters, classes))
    return (lots.argsort(1).argsort(1) < each).astype(float)


def consecutive(groups: int, classes: int = 10) -> list[list[int]]:
    """FedAC's clusters: consecutive classes, as equal as can be, the smaller clusters first.

    >>> consecutive(4)
    [[0, 1], [2, 3], [4, 5, 6], [7, 8, 9]]
    """
    whole(f"[1, {classes}]", groups=groups)
    sizes = sorted(len(part) for part in np.array_split(np.arange(classes), groups))
    return [part.tolist() for part in np.split(np.arange(classes), np.cumsum(sizes)[:-1])]


def class_groups(
    data: Dataset,
    clients: int = 100,
    groups: int | Sequence[Sequence[int]] = 2,
    *,
    seed: int = 0,
    **options: Any,
) -> Federation:
    """FedAC: each group of clients has some classes, divided evenly and at random among them.

    `groups` lists the classes of each group; a number means `consecutive` classes, 1 means IID.

    >>> from fedclust.datasets import load
    >>> fed = class_groups(load("glyphs", n=1000, n_test=100), clients=4, groups=2)
    >>> sorted(fed.y[0].unique().tolist()), fed.group.tolist()
    ([0, 1, 2, 3, 4], [0, 0, 1, 1])
    """
    everything = np.arange(len(data.classes))
    if isinstance(groups, int):
        groups = consecutive(groups, len(everything))
    require(isinstance(groups, (list, tuple)), f"groups={shown(groups)}: a number or lists")
    for held in groups:
        require(
            isinstance(held, (list, tuple)) and held and all(c in everything for c in held),
            f"groups: {shown(held)} must list one or more of the classes 0 to {everything[-1]}",
        )
    table = np.array([np.isin(everything, held) for held in groups], float)
    return by_table(data, table, clients, "clients", seed, **options)


def iid_mix(
    data: Dataset,
    iid: int = 5,
    other: int = 15,
    *,
    generator: str = "paper",
    classes_per_client: tuple[int, int] | None = None,
    test: str = "global",
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
    one_of(("global", "own"), test=test)
    y, y_test = half_labels(data, seed, **options)
    classes, own = len(data.classes), test == "own"
    train, group = mixed(y, classes, iid, other, generator, classes_per_client, seed)
    table = class_shares(y, train, classes) if own else np.ones((1, classes))
    rng = numpy_stream(seed, "iid_mix", "test")
    tests = distribute(y_test, table, np.arange(len(group)) * own, rng)
    return assemble(data, train, tests, group, seed, **{"validation": 0.2, **options})


def iid_mix_counts(
    y: Tensor,
    iid: int = 5,
    other: int = 15,
    *,
    generator: str = "paper",
    classes_per_client: tuple[int, int] | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Samples per client and class (N, classes), and the group, of `iid_mix` on labels `y`."""
    labels, classes = y.numpy(), int(y.max()) + 1
    lists, group = mixed(labels, classes, iid, other, generator, classes_per_client, seed)
    counts = torch.from_numpy(class_shares(labels, lists, classes)).long()
    return counts, torch.from_numpy(group)


def class_counts(fed: Federation, half: str = "train") -> Tensor:
    """Samples per client and class, (N, classes)."""
    _, y, mask = fed.half(half)
    counts = torch.zeros(len(fed), fed.classes, dtype=torch.long)
    return counts.scatter_add_(1, y.cpu(), mask.cpu().long())
