"""IFCA's and CFL's clients: groups that turn their images or permute their labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedclust.assembly import Index, assemble, distribute, groups_of, half_labels, relabelled
from fedclust.checks import Count, checked, number, require, whole
from fedclust.datasets import Dataset
from fedclust.experiments.parts.rotation import black_pixels, turn
from fedclust.federation import Federation
from fedclust.paths import short
from fedclust.rng import numpy_stream

__all__ = ["label_swapped_groups", "rotated_groups"]


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
    require(listed, f"angles={short(angles)}: must list one or more angles in degrees")
    for angle in angles:
        number("(-inf, inf)", angle=angle)
    fed = equal_groups(data, clients, len(angles), samples, seed, **options)
    black, turned = black_pixels(data.mean, data.std, 1), {}
    for end in fed.ends:
        x, mask = getattr(fed, "x" + end).clone(), getattr(fed, "mask" + end)
        for k, angle in enumerate(angles):
            which, square = fed.group == k, data.shape[1] == data.shape[2]
            if angle % 180 == 0 or (angle % 90 == 0 and square):
                x[which] = x[which].rot90(int(angle // 90), (-2, -1))
            else:
                degrees = torch.full((int(which.sum()),), float(angle))
                images = turn(x[which], degrees, black.expand(len(degrees), -1))
                x[which] = images * mask[which][:, :, None, None, None]  # padding stays 0
        turned["x" + end] = x
    degrees = torch.tensor([float(angle) for angle in angles])
    return replace(fed, **turned, angle=degrees[fed.group])


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
    classes = list(range(len(data.classes)))
    lists = groups if isinstance(groups, (list, tuple)) else permutations(classes, groups, seed)
    for labels in lists:
        require(
            isinstance(labels, (list, tuple)) and sorted(labels) == classes,
            f"groups: {short(labels)} must be a permutation of the classes 0 to {classes[-1]}",
        )
    fed = equal_groups(data, clients, len(lists), samples, seed, **options)
    return relabelled(fed, torch.tensor(lists)[fed.group], len(classes))


def permutations(classes: list[int], groups: Any, seed: int) -> list[list[int]]:
    """Different random orders of the classes."""
    whole("[1, inf)", groups=groups)
    possible = np.prod(np.arange(1.0, len(classes) + 1))
    require(groups <= possible, f"groups={groups}: {len(classes)} classes have {possible:g} orders")
    rng = numpy_stream(seed, "permutations")
    found: list[list[int]] = []
    while len(found) < groups:
        order = rng.permutation(len(classes)).tolist()
        found += [order] if order not in found else []
    return found


@checked
def equal_groups(
    data: Dataset, clients: int, k: int, samples: Count | None, seed: int, **options: Any
) -> Federation:
    """k groups with equal random shares; with `samples` each group draws from the whole set."""
    y, y_test = half_labels(data, seed, **options)
    group, table = groups_of(clients, k, len(y)), np.ones((1, len(data.classes)))
    rng = numpy_stream(seed, "groups")

    def shares(labels: Index, count: int) -> list[Index]:
        return distribute(labels, table, np.zeros(count, np.int64), rng)

    if samples is None:
        return assemble(data, shares(y, clients), shares(y_test, clients), group, seed, **options)
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
