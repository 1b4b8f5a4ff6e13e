"""Groups of clients that differ in one way: their images are turned, or their labels are permuted
or wrong.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedclust.assembly import Index, assemble, distribute, half_labels
from fedclust.checks import number, require, shown, whole
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.rng import numpy_stream, stream
from fedclust.rotation import black_pixels, turn

HALVES = ("", "_val", "_test")


def rotated_groups(
    data: Dataset,
    clients: int,
    angles: Sequence[float] = (0, 90, 180, 270),
    *,
    samples: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Federation:
    """Clients with equal random shares; each group turns its images by its own angle (IFCA).

    The angles are degrees, counter-clockwise, and right angles are exact. Without `samples` an
    image has one owner. With `samples`, the training images per client, each group draws from the
    whole data set and tests on all of its test half: in Ghosh et al. 2020 every image occurs once
    per angle.

    >>> from fedclust.datasets import load
    >>> data = load("glyphs", n=100, n_test=20)
    >>> fed = rotated_groups(data, clients=4, angles=(0, 90), samples=30)
    >>> fed.sizes.tolist(), fed.group.tolist(), fed.angle.tolist()
    ([30, 30, 30, 30], [0, 0, 1, 1], [0.0, 0.0, 90.0, 90.0])
    """
    listed = isinstance(angles, (list, tuple)) and len(angles) > 0
    require(listed, f"angles={shown(angles)}: must list one or more angles in degrees")
    for angle in angles:
        number("(-inf, inf)", angle=angle)
    fed = grouped(data, clients, len(angles), samples, seed, **options)
    degrees = torch.tensor([float(angle) for angle in angles])
    black = black_pixels(data.mean, data.std, 1)

    def turned(end: str, k: int, which: Tensor) -> Tensor:
        images, right = getattr(fed, "x" + end)[which], degrees[k] / 90
        if right == right.round() and (right % 2 == 0 or data.shape[1] == data.shape[2]):
            return images.rot90(int(right), (-2, -1))
        n = len(which)
        images = turn(images, degrees[k].expand(n), black.expand(n, -1))
        return images * getattr(fed, "mask" + end)[which].view(n, -1, 1, 1, 1)  # padding stays 0

    return replace(by_group(fed, "x", turned), angle=degrees[fed.group])


def label_swapped_groups(
    data: Dataset,
    clients: int,
    groups: int | Sequence[Sequence[int]] = 4,
    *,
    samples: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Federation:
    """Clients with equal random shares; each group permutes the labels in its own way (CFL).

    `groups` lists what each group makes of the labels 0, 1, ...; a number means different random
    permutations, as in Sattler et al. 2021. `samples` as in `rotated_groups`.

    >>> from fedclust.datasets import load
    >>> fed = label_swapped_groups(load("glyphs", n=100, n_test=20), clients=4, groups=2)
    >>> fed.sizes.tolist(), fed.group.tolist()
    ([25, 25, 25, 25], [0, 0, 1, 1])
    """
    classes = len(data.classes)
    if isinstance(groups, (list, tuple)):
        lists = [list(labels) if isinstance(labels, (list, tuple)) else [] for labels in groups]
    else:
        lists = permutations(classes, groups, seed)
    for labels in lists:
        require(
            sorted(labels) == list(range(classes)),
            f"groups: {shown(labels)} must be a permutation of the classes 0 to {classes - 1}",
        )
    fed = grouped(data, clients, len(lists), samples, seed, **options)
    new = torch.tensor(lists)

    def swapped(end: str, k: int, which: Tensor) -> Tensor:
        y, mask = getattr(fed, "y" + end)[which], getattr(fed, "mask" + end)[which]
        return torch.where(mask, new[k][y], 0)

    return by_group(fed, "y", swapped)


def poisoned(
    data: Dataset, clients: int, share: float = 1 / 3, *, seed: int = 0, **options: Any
) -> Federation:
    """Clients with equal random shares; a share of them, group 1, has labels at random.

    Their test half is as it was.

    >>> from fedclust.datasets import load
    >>> poisoned(load("glyphs", n=100, n_test=20), clients=6).group.tolist()
    [0, 0, 0, 0, 1, 1]
    """
    number("[0, 1)", share=share)
    fed = grouped(data, clients, 1, None, seed, **options)
    group = (torch.arange(clients) >= clients - round(share * clients)).long()
    draw, new = stream(seed, "poisoned"), dict[str, Any]()
    for end in ("", "_val") if fed.y_val is not None else ("",):
        y, mask = getattr(fed, "y" + end), getattr(fed, "mask" + end)
        wrong = torch.randint(fed.classes, y.shape, generator=draw)
        new["y" + end] = torch.where(group[:, None].bool() & mask, wrong, y)
    return replace(fed, group=group, **new)


def permutations(classes: int, groups: Any, seed: int) -> list[list[int]]:
    """Different random orders of the classes."""
    whole("[1, inf)", groups=groups)
    possible = np.prod(np.arange(1.0, classes + 1))
    require(groups <= possible, f"groups={groups}: {classes} classes have {possible:g} orders")
    rng = numpy_stream(seed, "permutations")
    found: list[list[int]] = []
    while len(found) < groups:
        order = rng.permutation(classes).tolist()
        found += [order] if order not in found else []
    return found


def grouped(
    data: Dataset, clients: int, k: int, samples: int | None, seed: int, **options: Any
) -> Federation:
    """k groups with equal random shares; with `samples` each group draws from the whole set."""
    y, y_test = half_labels(data, seed, **options)
    whole("[0, inf)", clients=clients)
    require(
        k <= clients <= len(y),
        f"clients={clients}: must be between {k} (one per group) and {len(y)} (one per sample)",
    )
    group, table = np.arange(clients) * k // clients, np.ones((1, len(data.classes)))
    rng = numpy_stream(seed, "groups")

    def shares(labels: Index, count: int) -> list[Index]:
        return distribute(labels, table, np.zeros(count, np.int64), rng)

    if samples is None:
        return assemble(data, shares(y, clients), shares(y_test, clients), group, seed, **options)
    whole("[1, inf)", samples=samples)
    train, test = [], []
    for count in np.bincount(group).tolist():
        require(
            count * samples <= len(y),
            f"samples={samples}: the {count} clients of a group would need {count * samples} of "
            f"{len(y)} images; ask for at most {len(y) // count}",
        )
        order = rng.permutation(len(y))
        train += [order[i * samples : (i + 1) * samples] for i in range(count)]
        test += shares(y_test, count)
    return assemble(data, train, test, group, seed, **options)


def by_group(
    fed: Federation, part: str, change: Callable[[str, int, Tensor], Tensor]
) -> Federation:
    """The federation with one part ("x" or "y") of every half changed, group by group."""
    new: dict[str, Any] = {}
    for end in HALVES:
        if (values := getattr(fed, part + end)) is None:
            continue
        new[part + end] = values.clone()
        for k in fed.group.unique().tolist():
            which = (fed.group == k).nonzero()[:, 0]
            new[part + end][which] = change(end, k, which)
    return replace(fed, **new)
