"""Records that are shipped beside the figures: trained again, they must come out as they are."""

import json
import tempfile
from collections.abc import Iterator

import pandas as pd

from fedclust.experiments import Trial, sweep
from fedclust.paths import root

NEAR = 0.02  # by so much may means differ on another processor, which rounds differently


def verify(tier: str, trials: int) -> Iterator[tuple[str, float]]:
    """Train the cheapest shipped trials of each paper again: their names, and the difference."""
    for folder in sorted((root() / "figures" / tier).glob("*/records")):
        notes = {
            path: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")
        }
        for path, note in sorted(notes.items(), key=lambda item: (item[1]["seconds"], item[0]))[
            :trials
        ]:
            kept = pd.read_parquet(path.with_suffix(".parquet"))
            trial = Trial(note["settings"], int(kept["seed"].iloc[0]), task=note["task"])
            with tempfile.TemporaryDirectory() as fresh:
                again = sweep([trial], jobs=1, folder=fresh)
            yield (
                f"{folder.parent.name} {path.stem} ({note['seconds']:.0f} s)",
                distance(kept, again),
            )


def distance(kept: pd.DataFrame, again: pd.DataFrame) -> float:
    """0 if every value is the same; else the largest difference between the means of a metric."""
    if kept["value"].equals(again["value"]):
        return 0.0
    means = [frame.groupby("metric", observed=True)["value"].mean() for frame in (kept, again)]
    return float(((means[0] - means[1]).abs() / means[0].abs().clip(lower=1)).max(skipna=False))
