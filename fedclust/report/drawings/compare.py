"""The comparison's figures: gaps closed, accuracy against bytes, who beats whom, mean ranks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedclust.report import plots
from fedclust.report.bench import Cube, Interval

BASES = "FedAvg", "Local"
NEAR = 0.006  # of accuracy: labels would overlap
LETTER = 0.013  # of the width of a panel


def cells(cube: Cube, method: str) -> list[tuple[float, str]]:
    """Per task the share of the gap that colours the cell (nan: there is no gap), and its text."""

    def text(span: Interval, unit: float, form: str) -> str:
        mean, low, high = (f"{unit * value:{form}}" for value in span)
        return f"{mean}\n{low} {high}"

    shares, gains = cube.closed(method), cube.difference(method, "FedAvg")
    return [
        (np.nan, text(gain, 100, "+z.1f")) if share is None else (share[0], text(share, 1, "z.2f"))
        for share, gain in zip(shares, gains, strict=True)
    ]


def matrix(cube: Cube) -> Figure:
    """A row per method, a column per scenario, a panel per data set."""
    sets = list(dict.fromkeys(data for data, _ in cube.tasks))
    rows = [method for method in cube.methods if method not in ("FedAvg", "Oracle")]
    drawn = [cells(cube, method) for method in rows]
    fig, axes = plots.panels(len(sets), 1, height=0.26 * len(rows) + 0.5, squeeze=False)
    for ax, data in zip(axes[:, 0], sets, strict=True):
        here = [at for at, (name, _) in enumerate(cube.tasks) if name == data]
        values = np.array([[row[at][0] for at in here] for row in drawn])
        shown = np.ma.masked_invalid(values.clip(-1, 1))
        ax.pcolormesh(shown, cmap="RdBu", vmin=-1.25, vmax=1.25, edgecolors="white", lw=1)
        ax.set_facecolor("#E4E4E4")
        for i, row in enumerate(drawn):
            for j, at in enumerate(here):
                ink = "white" if abs(row[at][0]) > 0.7 else "black"
                where = j + 0.5, i + 0.5
                ax.text(*where, row[at][1], size=5.6, ha="center", va="center", color=ink)
        ax.invert_yaxis()
        ax.grid(False)
        ax.tick_params(length=0)
        names = ["\n".join(cube.tasks[at][1].rsplit(" ", 1)) for at in here]
        ax.set_xticks(np.arange(0.5, len(here)), names)
        ax.set_yticks(np.arange(0.5, len(rows)), rows)
        ax.xaxis.tick_top()
        ax.spines[:].set_visible(False)
        ax.set_title(data)
    return fig


def traffic(scores: pd.DataFrame, kinds: dict[str, str]) -> Figure:
    """Mean accuracy over all scenarios against the bytes of a run; methods that send nothing are at
    the left end.
    """
    sets = list(dict.fromkeys(scores.data))
    fig, axes = plots.panels(1, len(sets), height=3.0, squeeze=False)
    known = dict.fromkeys([*kinds.values(), "yours"])
    shapes = {kind: plots.look(k) for k, kind in enumerate(known)}
    for ax, data in zip(axes[0], sets, strict=True):
        means = scores[scores.data == data].groupby("method", sort=False)[["accuracy", "bytes"]]
        means = means.mean()
        least = means.bytes[means.bytes > 0].min() / 3
        near: dict[tuple[float, float], list[str]] = {}  # who shares a label: they would overlap
        for name, row in means.iterrows():
            kind = kinds.get(str(name), "yours")
            at = max(row.bytes, least) / 1e6, row.accuracy
            ax.plot(*at, shapes[kind]["marker"], color=shapes[kind]["color"], label=kind)
            place = next(
                (p for p in near if abs(p[0] / at[0] - 1) < 0.1 and abs(p[1] - at[1]) < NEAR), at
            )
            near.setdefault(place, []).append(str(name))
        width = np.log(means.bytes.max() / least)
        for place, names in near.items():
            label = ", ".join(names)
            reach = place[0] * np.exp(width * (0.03 + LETTER * len(label)))
            hits = any(abs(y - place[1]) < NEAR and place[0] < x < reach for x, y in near)
            below = (4, -11 if hits else -2)  # points
            ax.annotate(label, place, below, textcoords="offset points", size=6.5)
        ax.set(xscale="log", xlabel="megabytes of a run", ylabel="mean accuracy", title=data)
    plots.legend(fig)
    return fig


def improvements(cube: Cube) -> Figure:
    """A row per method, a panel per base: the probability of being better, with its interval."""
    rows = [method for method in cube.methods if method not in BASES]
    fig, axes = plots.panels(1, len(BASES), height=0.2 * len(rows) + 0.6, sharey=True)
    for ax, base in zip(axes, BASES, strict=True):
        spans = np.array([cube.improvement(method, base) for method in rows])
        at = np.arange(len(rows))
        sure = (spans[:, 1] > 0.5) | (spans[:, 2] < 0.5)
        ax.hlines(at, spans[:, 1], spans[:, 2], color=plots.GREY)
        ax.plot(spans[sure, 0], at[sure], "o", color="black")
        ax.plot(spans[~sure, 0], at[~sure], "o", color="black", mfc="white")
        ax.axvline(0.5, color="black", lw=0.8, ls=":")
        ax.set(xlim=(0, 1), xlabel=f"P(better than {base})", yticks=at, yticklabels=rows)
    axes[0].invert_yaxis()
    return fig


def ranking(cube: Cube, methods: Sequence[str]) -> Figure:
    """Mean ranks over tasks, best first. Two methods differ for sure if their lines do not overlap
    (Nemenyi's test).
    """
    means, critical = cube.ranks(methods)
    fig, ax = plots.panels(height=0.2 * len(means) + 0.6, width=4.6)
    at = np.arange(len(means))
    ax.hlines(at, means - critical / 2, means + critical / 2, color=plots.GREY)
    ax.plot(means, at, "o", color="black")
    ax.set(xlabel=f"mean rank over {len(cube.tasks)} scenarios (1 is best)")
    ax.set_yticks(at, means.index)
    ax.invert_yaxis()
    return fig
