"""The general task: one method on one federation, round by round."""

import pandas as pd

from fedclust.experiments import build
from fedclust.experiments.build import Settings
from fedclust.experiments.progress import Tell, quiet
from fedclust.simulation import run

__all__ = ["train"]


def train(
    settings: Settings, seed: int, progress: Tell = quiet, checkpoint: str | None = None
) -> pd.DataFrame:
    fed, model, method = build.everything(settings, seed)
    fed, events = build.with_events(fed, settings)
    return run(
        method,
        fed,
        model,
        rounds=settings["rounds"],
        seed=seed,
        events=events,
        eval_every=settings.get("eval_every", 1),
        checkpoint=checkpoint,
        progress=progress,
        until=settings.get("until"),
    )
