"""How many seeds the claims of a paper need, and what the rule makes of so many.

The first five seeds are a pilot. The number is set from their spread alone, never from their mean,
once per paper and tier; it is written into papers/<key>.toml ([[seeds_planned]]), then all are run.
"""

import json
import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedclust.paths import figures
from fedclust.report import plots
from fedclust.report.effects import by_count, marks, values
from fedclust.report.expressions import ExpressionError
from fedclust.report.papers import Paper
from fedclust.report.verdicts import REFUTED, count_needed, interval, place, seeds_needed

PILOT, CAP = 5, 20  # seeds


def needed(test: dict[str, Any], pilot: pd.DataFrame, parts: int) -> tuple[float, int | None]:
    """The pilot's spread in units of h, and the seeds that make the interval shorter than h."""
    try:
        x = values(test, pilot)
    except ExpressionError:  # it is not measured at this tier
        return math.nan, None
    x = x[np.isfinite(x)]
    if test.get("exact"):
        return math.nan, 1
    if by_count(test, x):
        return 0.0, count_needed(x[:0], parts)
    if len(x) < 2:
        return math.nan, None
    tried, half = test.get("tried", 1), marks(test)[1]
    count = seeds_needed(lambda error: estimate(x, error / tried), len(x), half, parts)
    return float(x.std(ddof=1)) / half, count


def table(paper: Paper, measures: pd.DataFrame, seconds: float, cap: int = CAP) -> pd.DataFrame:
    """A row per claim: its widest test, the seeds it needs, the hours they cost beyond the pilot.

    `seconds` are what one seed of the whole paper costs.
    """
    pilot, rows = measures[:PILOT], []
    for claim in paper.claims.values():
        tests = [test for test in claim["test"] if not test.get("beside")]
        found = [(*needed(test, pilot, len(tests)), test.get("label", "")) for test in tests]
        widest: tuple[float, int | None, str] = (math.nan, None, "")
        spread, count, label = max(found, key=lambda entry: entry[1] or 0, default=widest)
        hours = math.nan if count is None else max(0, min(count, cap) - len(pilot)) * seconds / 3600
        rows.append([claim["id"], label, spread, count, hours, count is None or count > cap])
    columns = ["claim", "widest test", "spread / h", "seeds", "hours more", "beyond the cap"]
    return pd.DataFrame(rows, columns=columns)


def read(key: str, tier: str) -> tuple[pd.DataFrame, float]:
    """The measures of a paper's last run at a tier, a row per seed, and the seconds of one seed."""
    folder = figures() / tier / key
    try:
        measures = pd.read_csv(folder / "measures.csv", index_col="seed")
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        return measures, about["cost"]["cpu_seconds"] / len(about["seeds"])
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{folder} has no run to plan from ({error}): make {key} TIER={tier}"
        ) from error


def estimate(x: Any, error: float) -> tuple[float, float, float]:
    return interval(x, 1 - error)


# --- what the procedure does ----------------------------------------------------------------------


def simulate(effect: float, spread: float, runs: int, cap: int = CAP) -> Counter[str]:
    """Parts of a test whose true effect and spread are given in units of the printed effect.

    A pilot of five sets the number of seeds, up to the cap; then all are judged.
    """
    found: Counter[str] = Counter()
    for x in effect + spread * np.random.default_rng(0).standard_normal((runs, cap)):
        pilot = seeds_needed(partial(estimate, x[:PILOT]), PILOT, 0.5)
        n = min(cap, max(PILOT, pilot or PILOT))
        found[place(partial(estimate, x[:n]), 0.5)] += 1
    return found


def power(path: Path | None = None, runs: int = 400) -> Path:
    """Draw how often an effect is shown and refuted, by its true size and by the spread."""
    path = path or figures() / "verdicts" / "power"
    path.parent.mkdir(parents=True, exist_ok=True)
    effects, spreads = np.linspace(-0.25, 1.5, 15), (0.1, 0.3, 0.6, 1.0)
    fig, axes = plots.panels(1, 2, height=2.4, sharey=True)
    for k, spread in enumerate(spreads):
        parts = [simulate(effect, spread, runs) for effect in effects]
        shown = [(found["holds"] + found["weaker"]) / runs for found in parts]
        refuted = [sum(found[part] for part in REFUTED) / runs for found in parts]
        for ax, shares in zip(axes, (shown, refuted), strict=True):
            ax.plot(effects, shares, label=f"{spread:g}", **plots.look(k) | {"markevery": 2})
    for ax, title in zip(axes, ("holds or weaker", "absent or reversed"), strict=True):
        for mark, name in ((0, "no effect"), (0.5, "h"), (1, "as printed")):
            ax.axvline(mark, color="0.8", lw=0.8, zorder=0)
            ax.annotate(name, (mark, 1.06), ha="center", fontsize="x-small", color="0.4")
        ax.axhline(0.05, color="0.6", lw=0.8, ls=":", zorder=0)
        ax.set(title=title, xlabel="true effect / printed effect", ylim=(0, 1.14))
    axes[0].set_ylabel("share of the cases")
    axes[1].legend(title="spread / printed", loc="center right")
    plots.footer(fig, f"a pilot of {PILOT} seeds, at most {CAP}; {runs} simulated cases per point")
    plots.save(fig, path)
    return path.with_suffix(".svg")


def text_of(frame: pd.DataFrame) -> str:
    whole = {"seeds": lambda value: f"{value:.0f}" if value == value else "-"}
    return frame.to_string(index=False, formatters=whole, float_format="{:.2f}".format, na_rep="-")
