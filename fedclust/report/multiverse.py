"""The multiverse of readings: what becomes of the claims if open values are read otherwise.

Each draw takes one of the defensible values of every open setting (`readings` in papers/<key>.toml)
and a seed of its own, trains what the paper's main claims need, and keeps its measures as a line of
figures/readings/<key>.jsonl. A line that is there is not measured again.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from fedclust.experiments.draws import Draw, draws
from fedclust.paths import figures, write
from fedclust.report import measuring
from fedclust.report.papers import Paper, Parameters

TIER, DRAWS, OURS = "quick", 64, 5  # sizes; draws; seeds of our own reading

Record = dict[str, Any]  # of a draw: its seed, all settings, and its measures
Values = dict[str, list[Any]]  # by setting: our value, then the others


def base(paper: Paper, tier: str) -> Draw:
    """Our reading, at the sizes of the readings; with one seed of each kind."""
    found = paper.at(tier) | paper.multiverse.get("sizes", {})
    return found | {name: 1 for name in found if name.endswith("_seeds")}


def values(paper: Paper, tier: str = TIER) -> Values:
    """Every open setting's defensible values: ours, then the others in the order of the file."""
    ours, found = base(paper, tier), {}
    for name, setting in paper.settings.items():
        if others := [entry["value"] for entry in setting.get("readings", [])]:
            given = [ours[name], setting["value"], *others]
            found[name] = [v for i, v in enumerate(given) if v not in given[:i]]
    return found


def path(key: str, suffix: str) -> Path:
    return figures() / "readings" / f"{key}{suffix}"


def records(key: str) -> list[Record]:
    """The draws of a paper that are measured."""
    try:
        lines = path(key, ".jsonl").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def run(
    paper: Paper, asked: list[tuple[int, Draw]], jobs: int, say: Callable[[str], None], tier: str
) -> pd.DataFrame:
    """The measures under readings, a row for each with its seed; what is there is not run again."""
    kept, rows = records(paper.key), []
    counted = {name for name in measuring.reads(paper.key) if not name.endswith("seeds")}
    for done, (seed, draw) in enumerate(asked):
        settings = base(paper, tier) | draw
        wanted = {name: settings[name] for name in counted}
        there = (r for r in kept if r["seed"] == seed and wanted.items() <= r["settings"].items())
        if (record := next(there, None)) is None:
            say(f"{paper.key}: {done + 1} of {len(asked)}, seed {seed}: {told(draw)}")
            record = measured(paper, settings, seed, jobs, tier)
            kept.append(record)
            keep(paper.key, kept)
        rows.append(record["measures"])
    return pd.DataFrame(rows)


def readings(
    paper: Paper, count: int, jobs: int, say: Callable[[str], None], tier: str = TIER
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The values of so many draws, their measures, and those of our reading on the first seeds."""
    drawn = draws(values(paper, tier), count)
    ours = run(paper, [(seed, {}) for seed in range(OURS)], jobs, say, tier)
    return pd.DataFrame(drawn), run(paper, [*enumerate(drawn)], jobs, say, tier), ours


def measured(paper: Paper, settings: Draw, seed: int, jobs: int, tier: str) -> Record:
    """One draw: the plans that the paper's file names, with one seed."""
    how = {"seeds": [seed], "tier": tier, "jobs": jobs, "backend": "loky"}
    asked = {name: paper.multiverse.get(name, []) for name in ("plans", "without")}
    report = measuring.Sweeper(**asked, jobs=jobs, seeds=[seed])
    found = measuring.measures(paper, Parameters(settings | how), report)
    row = found.loc[[seed]].astype(float).iloc[0].dropna()
    shown = {name: value for name, value in settings.items() if not name.endswith("seeds")}
    return {"seed": seed, "settings": shown, "measures": {n: float(v) for n, v in row.items()}}


def keep(key: str, kept: list[Record]) -> None:
    lines = [json.dumps(record) for record in sorted(kept, key=lambda record: record["seed"])]
    path(key, "").parent.mkdir(parents=True, exist_ok=True)
    write(path(key, ".jsonl"), lambda aside: aside.write_text("\n".join(lines) + "\n"))


def told(draw: Draw) -> str:
    return ", ".join(f"{name} {value}" for name, value in draw.items()) or "our reading"
