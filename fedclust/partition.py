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
from typing import Any

import numpy as np
from torch import Tensor

from fedclust.assembly import (
    assemble,
    by_table,
    class_shares,
    distribute,
    half_labels,
)
from fedclust.checks import Count, checked, require, whole
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.paths import from_parts, short
from fedclust.rng import numpy_stream
from fedclust.rotation import turn

PAPERS = {  # splits of one paper, each in `experiments.parts.<paper>`, loaded when asked for
    "iid_mix": "cafa",
    "iid_mix_counts": "cafa",
    "dirichlet_rotated": "dcfl",
    "class_table": "joint",
    "draw_table": "joint",
    "TABLES": "joint",
    "rotated_groups": "ifca",
    "label_swapped_groups": "ifca",
    "dirichlet": "compare",
    "poisoned": "compare",
}
__all__ = ["class_counts", "class_groups", "consecutive", "iid", "label_slices"]
__all__ += ["turn", *(PAPERS.keys() - {"TABLES"})]
__getattr__, __dir__ = from_parts(__name__, PAPERS)


def iid(data: Dataset, clients: int, *, seed: int = 0, **options: Any) -> Federation:
    """Every client has an equal random share; one group.

    >>> from fedclust.datasets import load
    >>> fed = iid(load("glyphs", n=100, n_test=20), clients=5, seed=0)
    >>> len(fed), fed.sizes.tolist()
    (5, [20, 20, 20, 20, 20])
    """
    return class_groups(data, clients, 1, seed=seed, **options)


@checked
def label_slices(
    data: Dataset, clients: Count, slices_per_client: Count = 2, *, seed: int = 0, **options: Any
) -> Federation:
    """Sort by label, cut into equal slices, give each client some at random (McMahan 2017; OCFL).

    Clients are in one group if their slices have the same set of majority labels. With one slice
    per client the group is that label.

    >>> from fedclust.datasets import load
    >>> fed = label_slices(load("glyphs", n=1000, n_test=100), clients=20, slices_per_client=1)
    >>> all(y.unique().tolist() == [group] for y, group in zip(fed.y, fed.group))
    True
    """
    (y, y_test), slices = half_labels(data, seed, **options), clients * slices_per_client
    rng, classes = numpy_stream(seed, "label_slices"), len(data.classes)
    require(
        slices <= len(y),
        f"clients={clients}, slices_per_client={slices_per_client}: {slices} slices of {len(y)} "
        f"training samples; ask for 1 to {len(y)} slices in total",
    )
    order = rng.permutation(len(y))
    cut = np.array_split(order[y[order].argsort(kind="stable")], slices)
    deal = rng.permutation(slices).reshape(clients, slices_per_client)
    train = [np.concatenate([cut[j] for j in mine]) for mine in deal]
    test = distribute(y_test, class_shares(y, train, classes), np.arange(clients), rng)
    major = np.array([np.bincount(y[part]).argmax() for part in cut])[deal]  # (N, slices)
    group = major[:, 0]
    if slices_per_client > 1:
        held = (major[:, :, None] == np.arange(classes)).any(1)  # (N, slices) -> (N, classes)
        group = np.unique(held, axis=0, return_inverse=True)[1].reshape(-1)
    return assemble(data, train, test, group, seed, **options)


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
    require(isinstance(groups, (list, tuple)), f"groups={short(groups)}: a number or lists")
    for held in groups:
        require(
            isinstance(held, (list, tuple)) and held and all(c in everything for c in held),
            f"groups: {short(held)} must list one or more of the classes 0 to {everything[-1]}",
        )
    table = np.array([np.isin(everything, held) for held in groups], float)
    return by_table(data, table, clients, "clients", seed, **options)


def class_counts(fed: Federation, half: str = "train") -> Tensor:
    """Samples per client and class, (N, classes)."""
    return fed.class_counts(half)
