"""figures/forest: every test that is an effect on one axis. 0 is no effect, 1 the printed size."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedclust.paths import root
from fedclust.report import plots, scoreboard
from fedclust.report.verdicts import REFUTED

# A part's colour and marker; the colours get lighter in this order, and so does a grey print.
LOOKS = {
    "absent or reversed": ("#8C2D04", "X"),
    "holds": ("#0B63A5", "o"),
    "weaker": ("#5FA8DC", "D"),
    "open": ("#A9A9A9", "s"),
}
SHOWN = (-1.5, 3.0)  # of the axis; what is beyond has an arrow
STEP, GAP = 0.62, 1.0  # rows from one test to the next, and between claims


def tests(base: Path, printed: bool, tier: str = "paper") -> list[dict[str, Any]]:
    """The tests that are counted and have a size, in the order of papers and claims."""
    found = []
    for paper in scoreboard.verdicts(base, tier):
        for claim in paper["claims"]:
            named = {"key": paper["paper"], "claim": claim["id"], "short": claim["short"]}
            for test in claim["tests"]:
                counted = test["scaled"] and not test["beside"] and not test["same_as"]
                if counted and (test["least"] is None) == printed:
                    part = "absent or reversed" if test["part"] in REFUTED else test["part"]
                    found.append(named | test | {"part": part})
    return found


def draw(base: Path | None = None, tier: str = "paper") -> list[Path]:
    """figures/forest.svg and .png: printed sizes in two columns, below them units of `least`."""
    base = base or root()
    sized, others = tests(base, True, tier), tests(base, False, tier)
    left = [t for t in sized if t["key"] in halves(sized)]
    right = [t for t in sized if t not in left]
    rows = [left, right, others[: (len(others) + 1) // 2], others[(len(others) + 1) // 2 :]]
    heights = [max(map(room, rows[:2])), max(map(room, rows[2:]))]
    fig, axes = plots.panels(2, 2, height=0.052 * sum(heights), height_ratios=heights)
    for ax, part, height in zip(axes.flat, rows, np.repeat(heights, 2), strict=True):
        column(ax, part, height)
    axes[0, 0].set_title("effect / printed effect", loc="left")
    axes[1, 0].set_title("no printed size: effect / smallest that counts", loc="left")
    handles = [
        Line2D([], [], color=color, marker=marker, ls="", label=part)
        for part, (color, marker) in LOOKS.items()
    ]
    hollow: dict[str, Any] = {"color": "#555555", "mfc": "white", "ls": ""}
    handles.append(Line2D([], [], marker="o", label="outside the paper's regime", **hollow))
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    plots.footer(fig, f"tier {tier}; every test that is an effect, with its 95 % interval")
    return plots.save(fig, base / "figures" / "forest")


def halves(sized: list[dict[str, Any]]) -> set[str]:
    """The papers of the first column: about half of the rows."""
    names = list(dict.fromkeys(test["key"] for test in sized))
    counts = [room([t for t in sized if t["key"] in names[: k + 1]]) for k in range(len(names))]
    best = int(np.argmin(np.abs(np.array(counts) - room(sized) / 2))) if names else 0
    return {*names[: best + 1]}


def room(part: list[dict[str, Any]]) -> float:
    """The rows that these tests take."""
    claims = {(test["key"], test["claim"]) for test in part}
    return STEP * len(part) + GAP * (len(claims) + len({name for name, _ in claims})) + GAP


def column(ax: Axes, part: list[dict[str, Any]], height: float) -> None:
    y, before, ticks = 0.0, ("", ""), []
    for test in part:
        here = (test["key"], test["claim"])
        if test["key"] != before[0]:
            y += GAP
            ticks.append((y, test["key"].upper()))
        if here != before:
            y += GAP
            ticks.append((y, f"{test['short']}  {test['claim']}"))
            ax.axhline(y - 0.75 * GAP, color="#E4E4E4", lw=0.5, zorder=0)
        line(ax, test, y)
        y, before = y + STEP, here
    for mark, dashes in ((0, "-"), (1, (0, (4, 2)))):
        ax.axvline(mark, color="#333333", lw=1.0, ls=dashes, zorder=1)
    ax.set(xlim=SHOWN, ylim=(height, 0), xticks=[-1, 0, 1, 2])
    ax.set_yticks([at for at, _ in ticks], [label for _, label in ticks], size=6)
    for label in ax.get_yticklabels():
        label.set(weight="bold" if label.get_text().isupper() else "normal")
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")


def line(ax: Axes, test: dict[str, Any], y: float) -> None:
    mean, low, high = test["scaled"]
    color, marker = LOOKS.get(test["part"], LOOKS["holds"])
    inside = test["regime"] == "paper"
    ax.plot(np.clip([low, high], *SHOWN), [y, y], color=color, lw=1.3 if inside else 0.8, zorder=2)
    how: dict[str, Any] = {"color": color, "ms": 2.5, "clip_on": False, "zorder": 2}
    if low < SHOWN[0]:
        ax.plot(SHOWN[0], y, "<", **how)
    if high > SHOWN[1]:
        ax.plot(SHOWN[1], y, ">", **how)
    if SHOWN[0] <= mean <= SHOWN[1]:
        fill = color if inside else "white"
        ax.plot(mean, y, marker, color=color, mfc=fill, ms=3.6, zorder=3)
