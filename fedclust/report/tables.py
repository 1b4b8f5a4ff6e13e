"""Tables: numbers with their intervals, the paper's before ours, as frames and as Markdown."""

import math
import warnings
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedclust.report.verdicts import interval
from fedclust.report.words import number, ranged

if TYPE_CHECKING:
    from fedclust.report.papers import Paper


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table: whole numbers without places, others with three digits or so."""

    def cell(value: Any) -> str:
        if value is None or value != value:
            return ""
        text = number(value) if isinstance(value, float) else plain(value)
        return text.replace("|", "\\|").replace("\n", " ")

    head = [list(map(str, frame.columns)), ["---"] * frame.shape[1]]
    lines = [*head, *frame.to_numpy(dtype=object).tolist()]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def plain(value: Any) -> str:
    """A cell as text; settings without the signs of Python.

    >>> plain({"kind": "iid", "lr": 0.1}), plain([{"k": 2}, {"k": 4}]), plain({}), plain(3)
    ('kind iid, lr 0.1', 'k 2; k 4', '', '3')
    """
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return "; ".join(map(plain, value))
    return str(value)


def spread(samples: Any, digits: int | None = None, bounded: bool = False) -> str:
    """Mean over seeds with its 95 % interval, which stays from 0 to 1 if it is `bounded`."""
    mean, low, high = interval(samples)
    if math.isnan(mean):
        return ""
    if low == -math.inf:
        return f"{number(mean, digits)} (1 seed)"
    if bounded:
        low, high = max(low, 0.0), min(high, 1.0)
    return ranged(mean, low, high, digits)


def comparison(paper: "Paper", name: str, samples: pd.DataFrame) -> pd.DataFrame:
    """A line for each cell of a paper's table: the printed number, ours with its 95 % interval.

    `samples` has a row per seed and columns (row, column) as in the paper's table; it may have rows
    that the paper has not.
    """
    printed, columns = paper.printed(name), paper.tables[name]["columns"]
    theirs = list(dict.fromkeys(row for row, _ in printed))
    ours = list(dict.fromkeys(samples.columns.get_level_values(0)))
    added, missing = ([r for r in a if r not in b] for a, b in ((ours, theirs), (theirs, ours)))
    if added and missing:
        warnings.warn(
            f"{name}: {missing} not run, {added} not in the paper: misspelt?", stacklevel=3
        )
    lines = []
    for row in [*theirs, *added]:
        for column in columns:
            key = (row, column)
            mean, low, high = interval(samples[key]) if key in samples.columns else [math.nan] * 3
            seeds = int(samples[key].notna().sum()) if key in samples.columns else 0
            lines.append([row, column, printed.get(key), mean, low, high, seeds])
    header = ["row", "column", "paper", "ours", "low", "high", "seeds"]
    return pd.DataFrame(lines, columns=header)


def as_printed(compared: pd.DataFrame, bounded: bool = True) -> pd.DataFrame:
    """A comparison in the paper's own layout; each cell is "paper / ours [95 % interval]"."""
    cells: dict[str, dict[str, str]] = {}
    for row, column, paper, mean, low, high, seeds in compared.itertuples(index=False):
        if seeds == 0:
            ours = "not run"
        elif seeds == 1:
            ours = number(mean)
        else:
            inside = bounded and 0 <= mean <= 1
            ours = (
                ranged(mean, max(low, 0.0), min(high, 1.0)) if inside else ranged(mean, low, high)
            )
        known = paper if isinstance(paper, str) else None if pd.isna(paper) else f"{paper:g}"
        cells.setdefault(row, {})[column] = f"{known} / {ours}" if known else ours
    return pd.DataFrame(cells).T.fillna("").rename_axis("paper / ours").reset_index()


def summary(
    samples: pd.DataFrame, digits: int | None = None, bounded: bool = False
) -> pd.DataFrame:
    """Means with their 95 % intervals: `samples` has a row per seed and columns (row, column)."""
    cells = pd.Series({key: spread(samples[key], digits, bounded) for key in samples})
    return cells.unstack(sort=False).rename_axis("").reset_index()
