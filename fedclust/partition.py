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

from fedclust.assembly import by_table
from fedclust.checks import require, whole
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.paths import from_parts, short

PAPERS = {  # splits of one paper, each in `experiments.parts.<paper>`, loaded when asked for
    "iid_mix": "cafa",
    "iid_mix_counts": "cafa",
    "dirichlet_rotated": "dcfl",
    "turn": "rotation",
    "label_slices": "ocfl",
    "class_table": "joint",
    "draw_table": "joint",
    "TABLES": "joint",
    "rotated_groups": "ifca",
    "label_swapped_groups": "ifca",
    "dirichlet": "compare",
    "poisoned": "compare",
}
__all__ = ["class_counts", "class_groups", "consecutive", "iid", *(PAPERS.keys() - {"TABLES"})]
__getattr__, __dir__ = from_parts(__name__, PAPERS)

class_counts = Federation.class_counts


def iid(data: Dataset, clients: int, *, seed: int = 0, **options: Any) -> Federation:
    """Every client has an equal random share; one group.

    >>> from fedclust.datasets import load
    >>> fed = iid(load("glyphs", n=100, n_test=20), clients=5, seed=0)
    >>> len(fed), fed.sizes.tolist()
    (5, [20, 20, 20, 20, 20])
    """
    return class_groups(data, clients, 1, seed=seed, **options)


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
