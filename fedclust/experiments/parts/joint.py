"""Joint's clusters: a table of how many samples of each class each of them has."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from fedclust.assembly import Weights, by_table, relabelled
from fedclust.checks import Count, checked, require, whole
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.paths import short
from fedclust.rng import numpy_stream

__all__ = ["class_table", "draw_table"]

# fig. 2: samples of each class (columns) in each cluster (rows)
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


@checked
def class_table(
    data: Dataset,
    table: ArrayLike | None = None,
    *,
    devices: int | None = None,
    relabel: bool = True,
    seed: int = 0,
    **options: Any,
) -> Federation:
    """A table (K, classes) of samples per cluster and class; the clusters are the groups.

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
        raise ValueError(f"table={short(table)}: must be rows of numbers, {hint}") from error
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
    return relabelled(fed, rank, classes=int((counts > 0).sum(1).max()))


@checked
def draw_table(classes: Count, clusters: Count, each: int, seed: int = 0) -> Weights:
    """A table like joint's: each cluster has `each` random classes, a class is divided evenly."""
    whole(f"[1, {classes}]", each=each)
    lots = numpy_stream(seed, "draw_table").random((clusters, classes))
    return (lots.argsort(1).argsort(1) < each).astype(float)
