"""Joint's own task: `train` in short."""

import pandas as pd

from fedclust.experiments import build
from fedclust.experiments.progress import Tell, quiet
from fedclust.experiments.tasks.train import train

__all__ = ["averaged"]


def averaged(
    settings: build.Settings, seed: int, checkpoint: str | None = None, progress: Tell = quiet
) -> pd.DataFrame:
    """`train`, with each metric's mean over the clients: for many rounds with many similar clients."""
    record = train(settings, seed, checkpoint, progress)
    by = ["algorithm", "seed", "round", "metric"]
    means = record.groupby(by, observed=True).value.mean().reset_index()
    means.attrs = record.attrs
    return means
