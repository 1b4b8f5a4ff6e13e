"""Splits that only the comparison uses: labels skewed without groups, labels at random."""

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch

from fedclust.assembly import by_table
from fedclust.checks import Count, Positive, checked
from fedclust.datasets import Dataset
from fedclust.experiments.parts.ifca import equal_groups
from fedclust.federation import Federation
from fedclust.rng import numpy_stream, stream

__all__ = ["dirichlet", "poisoned"]


@checked
def dirichlet(
    data: Dataset, clients: Count, alpha: Positive = 0.5, *, seed: int = 0, **options: Any
) -> Federation:
    """Label skew without groups: a Dirichlet(alpha) draws each client's class mix; one group.

    alpha = 0.1 is very skewed, 100 nearly even.

    >>> from fedclust.datasets import load
    >>> fed = dirichlet(load("glyphs", n=400, n_test=100), clients=5, alpha=1, limit=20)
    >>> fed.group.tolist(), int(fed.sizes.max())
    ([0, 0, 0, 0, 0], 20)
    """
    rng, classes = numpy_stream(seed, "dirichlet"), len(data.classes)
    table = rng.dirichlet(np.full(classes, alpha), clients).clip(1e-100)  # (N, classes)
    fed = by_table(data, table, clients, "clients", seed, **options)
    return replace(fed, group=torch.zeros_like(fed.group))


@checked
def poisoned(
    data: Dataset,
    clients: int,
    share: Annotated[float, "[0, 1)"] = 1 / 3,
    *,
    seed: int = 0,
    **options: Any,
) -> Federation:
    """Clients with equal random shares; a share of them, group 1, has labels at random.

    Their test half is as it was.

    >>> from fedclust.datasets import load
    >>> poisoned(load("glyphs", n=100, n_test=20), clients=6).group.tolist()
    [0, 0, 0, 0, 1, 1]
    """
    fed = equal_groups(data, clients, 1, None, seed, **options)
    group = (torch.arange(clients) >= clients - round(share * clients)).long()
    draw, new = stream(seed, "poisoned"), dict[str, Any]()
    for end in ("", "_val") if fed.y_val is not None else ("",):
        y, mask = getattr(fed, "y" + end), getattr(fed, "mask" + end)
        wrong = torch.randint(fed.classes, y.shape, generator=draw)
        new["y" + end] = torch.where(group[:, None].bool() & mask, wrong, y)
    return replace(fed, group=group, **new)
