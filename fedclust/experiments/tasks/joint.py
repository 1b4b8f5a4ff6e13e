"""Joint's own task: `train` in short."""

import pandas as pd

from fedclust.experiments.build import Settings
from fedclust.experiments.progress import Tell, quiet
from fedclust.experiments.tasks.train import train

__all__ = ["averaged"]


def averaged(
    settings: Settings, seed: int, progress: Tell = quiet, checkpoint: str | None = None
) -> pd.DataFrame:
    """`train`, with each metric's mean over the clients, which are many and similar."""
    record = train(settings, seed, progress, checkpoint)
    by = ["algorithm", "seed", "round", "metric"]
    means = record.groupby(by, observed=True).value.mean().reset_index()
    means.attrs = record.attrs
    return means
