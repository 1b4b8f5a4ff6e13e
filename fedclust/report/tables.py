"""Tables: numbers with their intervals, ours beside the paper's, as frames and as Markdown."""

import math
import warnings
from typing import Any

import pandas as pd

from fedclust.report.papers import Paper, interval


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table; floats have three places."""

    def cell(value: Any) -> str:
        if value is None or value != value:
            return ""
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        return text.replace("|", "\\|").replace("\n", " ")

    head = [list(map(str, frame.columns)), ["---"] * frame.shape[1]]
    lines = [*head, *frame.to_numpy(dtype=object).tolist()]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def spread(samples: pd.Series, digits: int = 3) -> str:
    """Mean over seeds with its 95 % interval."""
    mean, low, high = interval(samples)
    if math.isnan(mean):
        return ""
    known = f"[{low:.{digits}f}, {high:.{digits}f}]" if low > -math.inf else "(1 seed)"
    return f"{mean:.{digits}f} {known}"


def comparison(paper: Paper, name: str, samples: pd.DataFrame) -> pd.DataFrame:
    """The paper's numbers of a table, ours with their 95 % intervals over seeds, the difference.

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
            cell, key = printed.get((row, column)), (row, column)
            if key not in samples.columns:
                lines.append([row, column, cell, "not run", ""])
                continue
            mean = interval(samples[key])[0]
            difference = f"{mean - cell:+.3f}" if isinstance(cell, (int, float)) else ""
            lines.append([row, column, cell, spread(samples[key]) or "not known", difference])
    header = ["", "value", "paper", "ours [95 % interval]", "difference"]
    return pd.DataFrame(lines, columns=header)


def summary(samples: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """Means with their 95 % intervals: `samples` has a row per seed and columns (row, column)."""
    cells = pd.Series({key: spread(samples[key], digits) for key in samples})
    return cells.unstack(sort=False).rename_axis("").reset_index()
