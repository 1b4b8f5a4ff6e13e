"""OCFL's clients: slices of the data that are sorted by label."""

from typing import Any

import numpy as np

from fedclust.assembly import assemble, class_shares, distribute, half_labels
from fedclust.checks import Count, checked, require
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.rng import numpy_stream

__all__ = ["label_slices"]


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
