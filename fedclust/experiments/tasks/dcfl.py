"""DCFL's own measurement: how far apart the clients' updates and their data are."""

import pandas as pd
import torch

from fedclust import geometry, partition
from fedclust.experiments import build
from fedclust.experiments.build import Settings
from fedclust.experiments.progress import Tell, quiet

__all__ = ["pairs"]


def pairs(settings: Settings, seed: int, progress: Tell = quiet) -> pd.DataFrame:
    """Distances between the clients' updates after `rounds` rounds, and between their data.

    One row per pair and distance: `angle` between the rotations (0 to 180 degrees), `labels`, the
    total variation distance of the label mixes, `together`, whether both are in one cluster.
    """
    fed, model, method = build.everything(settings, seed)
    rounds, state = settings["rounds"], method.init(model.init(seed), fed, seed)
    for t in range(rounds):
        state, _ = method.step(state, fed, seed, t)
        progress(t + 1, rounds)
    starts = state.models[state.labels]
    ends = method.train(starts, fed, torch.arange(len(fed)), seed, rounds)
    assert fed.angle is not None
    turned = (fed.angle[:, None] - fed.angle).abs()
    mix = partition.class_counts(fed) / fed.sizes[:, None]  # (N, classes)
    i, j = torch.triu_indices(len(fed), len(fed), 1)
    common = {
        "algorithm": type(method).__name__,
        "seed": seed,
        "round": rounds,
        "client": i,
        "other": j,
        "angle": torch.minimum(turned, 360 - turned)[i, j],
        "labels": (mix[:, None] - mix).abs().sum(2)[i, j] / 2,
        "together": (state.labels[i] == state.labels[j]).float(),
    }
    parts = []
    for kind in geometry.KINDS:
        distances = geometry.distance(starts, ends, kind)  # (N, N)
        parts.append(pd.DataFrame(common | {"metric": kind, "value": distances[i, j]}))
    return pd.concat(parts)
