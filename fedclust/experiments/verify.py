"""Records that are shipped with the figures: trained again, they must come out as they are."""

import tempfile
from collections.abc import Iterator

import pandas as pd

from fedclust.experiments import Trial, shipped, sweep
from fedclust.paths import root

NEAR = 0.02  # by so much may means differ on another processor, which rounds differently


def verify(tier: str, trials: int) -> Iterator[tuple[str, float]]:
    """Train the cheapest shipped trials of each paper again: their names, and the difference."""
    for note in sorted((root() / "figures" / tier).glob("*/records.json")):
        known = shipped.intact(note.parent)
        for identity in sorted(known, key=lambda each: (known[each]["seconds"], each))[:trials]:
            about = known[identity]
            trial = Trial(about["settings"], about["seed"], task=about["task"])
            with tempfile.TemporaryDirectory() as fresh:
                again = sweep([trial], jobs=1, folder=fresh)
            name = f"{note.parent.name} {identity[:20]} ({about['seconds']:.0f} s)"
            yield name, distance(shipped.read(about), again)


def distance(kept: pd.DataFrame, again: pd.DataFrame) -> float:
    """0 if every value is the same; else the largest difference between the means of a metric."""
    there = again["metric"].isin(kept["metric"].unique())  # not all metrics are shipped
    again = again[there].reset_index(drop=True)
    if kept["value"].equals(again["value"]):
        return 0.0
    means = [frame.groupby("metric", observed=True)["value"].mean() for frame in (kept, again)]
    return float(((means[0] - means[1]).abs() / means[0].abs().clip(lower=1)).max(skipna=False))
