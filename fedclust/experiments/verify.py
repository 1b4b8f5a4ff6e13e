"""Records that are shipped beside the figures: trained again, they must come out as they are."""

import tempfile
from collections.abc import Iterator

import pandas as pd

from fedclust.experiments import Trial, sweep
from fedclust.experiments.cache import noted
from fedclust.paths import root

NEAR = 0.02  # by so much may means differ on another processor, which rounds differently


def verify(tier: str, trials: int) -> Iterator[tuple[str, float]]:
    """Train the cheapest shipped trials of each paper again: their names, and the difference."""
    for folder in sorted((root() / "figures" / tier).glob("*/records")):
        notes = {path: note for path in folder.glob("*.json") if (note := noted(path))}
        cheapest = sorted(notes, key=lambda path: (notes[path]["seconds"], path))[:trials]
        for path in cheapest:
            note, kept = notes[path], pd.read_parquet(path.with_suffix(".parquet"))
            trial = Trial(note["settings"], int(kept["seed"].iloc[0]), task=note["task"])
            with tempfile.TemporaryDirectory() as fresh:
                again = sweep([trial], jobs=1, folder=fresh)
            name = f"{folder.parent.name} {path.stem} ({note['seconds']:.0f} s)"
            yield name, distance(kept, again)


def distance(kept: pd.DataFrame, again: pd.DataFrame) -> float:
    """0 if every value is the same; else the largest difference between the means of a metric."""
    if kept["value"].equals(again["value"]):
        return 0.0
    means = [frame.groupby("metric", observed=True)["value"].mean() for frame in (kept, again)]
    return float(((means[0] - means[1]).abs() / means[0].abs().clip(lower=1)).max(skipna=False))
