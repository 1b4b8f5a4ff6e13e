"""One house style: figures that read on a page and in print without colour.

The same record gives the same bytes. Figures are plain `matplotlib.figure.Figure`s (`panels`), so
nothing is shown twice or kept by pyplot. Where several seeds were run a figure takes a frame, one
row per seed and one column per x; `readings.by_round` makes it from a record.
"""

import os
import textwrap
from collections.abc import Iterable
from io import BytesIO
from operator import methodcaller
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from fedclust.paths import write
from fedclust.report.papers import interval

WIDTH = 7.2  # inches: a notebook's column
PALETTE = "#000000 #0072B2 #D55E00 #009E73 #CC79A7 #56B4E9 #E69F00 #7F7F7F".split()  # noqa: SIM905  Okabe, Ito
DASHES: Any = ["-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, *[1] * 5))]
MARKERS = "osD^vPX*"
FEW = 5  # so many seeds are drawn one by one; of more the interval says as much
METHODS: dict[str, tuple[str, int, str]] = {  # colour, dashes and marker, the same in every paper
    "FedAvg": ("#000000", 0, "o"),
    "DCFL": ("#0072B2", 1, "s"),
    "OCFL": ("#E69F00", 1, "^"),
    "FedAC": ("#D55E00", 1, "D"),
    "CAFA": ("#009E73", 1, "v"),
    "CFL": ("#CC79A7", 2, "P"),
    "FedProx": ("#56B4E9", 3, "X"),
    "FedACP": ("#0072B2", 4, "*"),
    "IFCA": ("#7F7F7F", 3, "P"),
    "Local": ("#009E73", 2, "X"),
}
GREY = "#9A9A9A"
STYLE: Any = {
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8),
    **dict.fromkeys(("font.size", "axes.labelsize"), 8.5),
    **dict.fromkeys(("figure.facecolor", "savefig.facecolor"), "white"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow", "figure.constrained_layout.use"), True),
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.06,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.7,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "image.cmap": "Blues",
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "fedclust",
}
UNDATED = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}


def style() -> None:
    """Make the house style matplotlib's default; `panels` and `save` do it by themselves."""
    mpl.rcParams.update(STYLE)


def look(which: int | str) -> dict[str, Any]:
    """Colour, dashes and marker of a method, by its name, or of the k-th curve.

    Any one of them tells it from the others.
    """
    if isinstance(which, str):
        color, dashes, marker = METHODS[which]
        return {"color": color, "ls": DASHES[dashes], "marker": marker}
    parts = {"color": PALETTE, "ls": DASHES, "marker": MARKERS}
    return {name: choices[which % len(choices)] for name, choices in parts.items()}


def panels(
    rows: int = 1, cols: int = 1, *, width: float = WIDTH, height: float = 2.4, **options: Any
) -> tuple[Figure, Any]:
    """A figure with rows of `height` inches, and its axes as `subplots` returns them."""
    style()
    fig = Figure(figsize=(width, height * rows), layout="constrained")
    return fig, fig.subplots(rows, cols, **options)


def log_axis(ax: Axes) -> None:
    """A logarithmic scale with plain numbers."""
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def round_axis(ax: Axes, metric: str = "accuracy", *, x: str = "round") -> None:
    """Whole rounds below; accuracy and purity from 0 to 1."""
    ax.set(xlabel=x, ylabel=metric)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if metric in ("accuracy", "purity"):
        ax.set_ylim(0, 1)


def client_curves(
    ax: Axes,
    record: pd.DataFrame,
    *,
    seed: int | None = None,
    title: str = "",
    printed: tuple[float, float] | None = None,
) -> None:
    """Every client's accuracy at one seed (the first by default) in grey, their mean in black.

    A newcomer's line starts late. `printed` is the paper's mean and deviation over clients.
    """
    seed = int(record["seed"].min()) if seed is None else seed
    scores = (record["metric"] == "accuracy") & (record["client"] >= 0)
    rows = record[scores & (record["seed"] == seed)]
    wide = rows.pivot_table(index="round", columns="client", values="value", observed=True)
    ax.plot(wide.index, wide, color=GREY, lw=0.6, alpha=0.6)
    ax.plot(wide.index, wide.mean(axis=1), color="black", lw=1.8)
    ax.add_line(Line2D([], [], color=GREY, lw=0.8, label="each client"))
    ax.add_line(Line2D([], [], color="black", lw=1.8, label="mean of the clients"))
    round_axis(ax)
    if printed is not None:
        at = float(wide.index[-1]) * 1.06
        how: Any = {"color": PALETTE[2], "mfc": "white", "ms": 5, "capsize": 2, "lw": 1}
        label = "the paper at the end: mean, deviation over clients"
        ax.errorbar(at, printed[0], yerr=printed[1], fmt="D", label=label, **how)
    ax.set_title(title)


def band(
    ax: Axes,
    frame: pd.DataFrame,
    label: str = "",
    *,
    k: int | None = None,
    seeds: bool | None = None,
    **line: Any,
) -> None:
    """Mean over the rows (seeds), and each row thinly or, of more than five, the 95 % t interval.

    `seeds` says which in spite of their number. A method's look follows from its name; `k` chooses
    another; else it is the next that this panel has not used.
    """
    count = getattr(ax, "_bands", 0)
    ax._bands = count + 1  # type: ignore[attr-defined]
    known = label if label in METHODS and k is None else None
    how = look(known or (count if k is None else k)) | line
    at = np.asarray(frame.columns, dtype=float)
    if len(frame) > 1 and (len(frame) <= FEW if seeds is None else seeds):
        ax.plot(at, frame.T.to_numpy(), color=how["color"], lw=0.6, alpha=0.4)
    elif len(frame) > 1:
        _, low, high = np.array([interval(frame[column]) for column in frame]).T
        ax.fill_between(at, low, high, color=how["color"], alpha=0.18, lw=0)
    step = max(1, len(at) // 8)
    how["markevery"] = (count % 5 * step // 5, step)
    ax.plot(at, frame.mean(), label=label, **how)


def curves(
    drawn: dict[str, dict[str, pd.DataFrame]],
    metric: str = "accuracy",
    *,
    x: str = "round",
    rows: int = 1,
    printed: dict[tuple[str, str], float] | None = None,
    at: float | None = None,
    looks: dict[str, dict[str, Any]] | None = None,
    cols: int | None = None,
    goal: float | None = None,
    said: str = "the paper",
    **options: Any,
) -> Figure:
    """A panel per title, in it a band per label; a dotted line marks a `goal`.

    Diamonds are the paper's `printed` numbers of (title, label), at the end of the band or `at`:
    filled for a solid line, open for a broken one. `said` is what the legend calls them.
    """
    looks, printed, marked = looks or {}, printed or {}, set[bool]()
    fig, axes = panels(rows, -(-len(drawn) // rows), squeeze=False, **options)
    for ax, (title, frames) in zip(axes.flat, drawn.items(), strict=True):
        for label, frame in frames.items():
            band(ax, frame, label, **looks.get(label, {}))
            if (title, label) in printed:
                end = float(frame.columns[-1]) * 1.04 if at is None else at
                color, dashes = ax.lines[-1].get_color(), ax.lines[-1].get_linestyle()
                diamond = {"color": color, "mfc": color if dashes == "-" else "white"}
                ax.plot(end, printed[title, label], "D", ms=5.5, zorder=4, **diamond)
                marked.add(diamond["mfc"] != "white")
        round_axis(ax, metric if ax in axes[:, 0] else "", x=x if ax in axes[-1] else "")
        ax.set_title(title)
        if goal is not None:
            ax.axhline(goal, color="black", lw=0.7, ls=":")
        if metric == "accuracy":
            ax.set_ylim(0, 1)
    for filled in sorted(marked):
        face, line = ("black", "solid") if filled else ("white", "broken")
        label = f"{said} ({line} lines)" if len(marked) > 1 else said
        axes.flat[-1].plot([], [], "D", color="black", mfc=face, ms=5.5, label=label)
    legend(fig, cols=cols)
    return fig


def legend(fig: Figure, *, cols: int | None = None) -> None:
    """Above the panels, where no curve is; each label of the figure once."""
    named = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in fig.axes]
    found = {label: handle for pairs in named for handle, label in pairs}
    letters = max(map(len, found)) + 8  # a handle takes as much
    fits = max(1, int(fig.get_figwidth() * 72 / (letters * 4.6)))
    cols = cols or int(np.ceil(len(found) / np.ceil(len(found) / fits)))
    # matplotlib fills columns, we read rows
    order = [label for c in range(cols) for label in list(found)[c::cols]]
    handles = [found[label] for label in order]
    fig.legend(handles, order, loc="outside upper center", ncols=cols)


def heat(
    ax: Axes,
    matrix: Any,
    rows: Iterable[Any],
    cols: Iterable[Any],
    *,
    xlabel: str = "",
    ylabel: str = "",
    form: str = "{:.0f}",
    vmin: float | None = 0,
    vmax: float | None = None,
) -> None:
    """A heat map, first row on top, with a number in each cell (zeros stay empty).

    Where the numbers do not fit there is a colour bar.
    """
    values = np.asarray(matrix, dtype=float)
    rows, cols = [str(r) for r in rows], [str(c) for c in cols]
    if values.shape != (len(rows), len(cols)):
        names = f"{len(rows)} names for rows, {len(cols)} for columns"
        raise ValueError(f"matrix of shape {values.shape}, but {names}")
    large = values.size >= 2000
    cells: Any = {"edgecolors": "white", "lw": 0 if large else 0.4, "rasterized": large}
    mesh = ax.pcolormesh(values, vmin=vmin, vmax=vmax, **cells)
    ax.invert_yaxis()
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    fig: Any = ax.get_figure(root=True)
    box, points = ax.get_position(), fig.get_size_inches() * 72
    wide, high = box.width * points[0] / len(cols), box.height * points[1] / len(rows)  # of a cell
    turned = max(map(len, cols)) * 4.6 > wide
    across = max(1, int(np.ceil(9 / wide))) if turned else 1  # so that names do not touch
    down = max(1, int(np.ceil(9 / high)))
    ax.set_xticks(np.arange(0.5, len(cols), across), cols[::across], rotation=90 * turned)
    ax.set_yticks(np.arange(0.5, len(rows), down), rows[::down])
    ax.set(xlabel=xlabel, ylabel=ylabel)
    texts = [[form.format(v) if np.isfinite(v) and v != 0 else "" for v in row] for row in values]
    longest = max(1, *(len(text) for row in texts for text in row))
    size = min(7.5, 0.62 * high, 0.82 * wide / (0.62 * longest))
    if size < 4.2:
        fig.colorbar(mesh, ax=ax, label="", shrink=0.85, pad=0.02)
        return
    dark = np.asarray(mesh.norm(values))
    for i, j in np.argwhere(np.array(texts) != ""):
        ink = "white" if dark[i, j] > 0.58 else "black"
        ax.text(j + 0.5, i + 0.5, texts[i][j], size=size, ha="center", va="center", color=ink)


def frame(col: int, row: int) -> Rectangle:
    """A frame around a cell of `heat`."""
    how: Any = {"fill": False, "ec": PALETTE[2], "lw": 1.6, "zorder": 3}
    return Rectangle((col + 0.04, row + 0.04), 0.92, 0.92, **how)


def footer(fig: Figure, text: str) -> None:
    """Small print below everything else: tier, seeds, data."""
    width, height = fig.get_size_inches()
    lines = textwrap.fill(text, int(width * 72 / 3.5))
    fig.text(0.005, -0.05 / height, lines, size=6.5, color="#555555", ha="left", va="top")


def render(fig: Figure) -> dict[str, bytes]:
    """The figure as ".svg" and ".png"; the same figure gives the same bytes."""
    made = {}
    with mpl.rc_context(STYLE):
        for suffix, metadata in UNDATED.items():
            buffer = BytesIO()
            fig.savefig(buffer, format=suffix[1:], metadata=metadata)
            made[suffix] = buffer.getvalue()
    return made


def save(fig: Figure, path: str | os.PathLike) -> list[Path]:
    """`path`.svg and `path`.png, each complete or not there."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    for suffix, content in render(fig).items():
        write(Path(f"{path}{suffix}"), methodcaller("write_bytes", content))
    return [Path(f"{path}{suffix}") for suffix in UNDATED]
