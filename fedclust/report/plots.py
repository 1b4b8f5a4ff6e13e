"""One house style: figures that read on a page and in print without colour; bytes that follow the record alone.

Figures are plain `matplotlib.figure.Figure`s (`panels`), so nothing is shown twice or kept by pyplot. Where several
seeds were run a figure takes a frame, one row per seed and one column per x; `by_round` makes it from a record.
"""

import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Arc, Rectangle
from matplotlib.ticker import MaxNLocator

from fedclust import geometry
from fedclust.algorithms.joint import Joint
from fedclust.decision import decisions
from fedclust.federation import Federation
from fedclust.report.readings import rounds_saved
from fedclust.paths import write
from fedclust.report.papers import interval

WIDTH = 7.2  # inches: a notebook's column
PALETTE = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F")  # Okabe and Ito 2008
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = "osD^vPX*"
GREY = "#9A9A9A"
STYLE: Any = {
    "figure.constrained_layout.use": True, "figure.dpi": 110, "savefig.dpi": 160, "savefig.bbox": "tight",
    "savefig.pad_inches": 0.06, "figure.facecolor": "white", "savefig.facecolor": "white",
    "font.family": "DejaVu Sans", "font.size": 8.5, "axes.titlesize": 9, "axes.titlelocation": "left",
    "axes.labelsize": 8.5, "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8, "legend.frameon": False,
    "legend.handlelength": 2.8, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7,
    "axes.axisbelow": True, "axes.grid": True, "grid.color": "#E4E4E4", "grid.linewidth": 0.6, "lines.linewidth": 1.5,
    "lines.markersize": 4.5, "axes.prop_cycle": cycler(color=PALETTE), "image.cmap": "Blues",
    "svg.fonttype": "path", "svg.hashsalt": "fedclust",
}  # fmt: skip


def style() -> None:
    """Make the house style matplotlib's default; `panels` and `save` do it by themselves."""
    mpl.rcParams.update(STYLE)


def look(k: int) -> dict[str, Any]:
    """The k-th curve's colour, dashes and marker: told apart by any one of them."""
    return {"color": PALETTE[k % len(PALETTE)], "ls": DASHES[k % len(DASHES)], "marker": MARKERS[k % len(MARKERS)]}


def panels(rows: int = 1, cols: int = 1, *, width: float = WIDTH, height: float = 2.4, **kw: Any) -> tuple[Figure, Any]:
    """A figure of the page's width with rows of `height` inches, and its axes as `subplots` returns them."""
    style()
    fig = Figure(figsize=(width, height * rows), layout="constrained")
    return fig, fig.subplots(rows, cols, **kw)


def by_round(record: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """The metric's mean over clients: one row per seed, one column per round."""
    rows = record[record["metric"] == metric]
    return rows.pivot_table(index="seed", columns="round", values="value", aggfunc="mean", observed=True)


def by_cluster(record: pd.DataFrame, of: str) -> tuple[pd.Series, pd.DataFrame]:
    """All algorithms' accuracy on the clients of the clusters that the algorithm `of` ends with, best served first.

    Indexed by algorithm, cluster (1, 2, ... by `of`'s last accuracy, seed by seed), seed and round; and a table of each
    client's cluster and group.
    """
    scores = record[(record.metric == "accuracy") & (record.client >= 0)]
    end = scores[(scores["round"] == scores["round"].max()) & (scores.algorithm == of)]
    order = end.groupby(["seed", "cluster"]).value.mean().groupby("seed").rank(ascending=False, method="first")
    members = end.join(order.astype(int).rename("place"), on=["seed", "cluster"])
    members = members.set_index(["seed", "client"])[["place", "group"]].rename(columns={"place": "cluster"})
    scores = scores.drop(columns=["cluster", "group"]).join(members, on=["seed", "client"])
    return scores.groupby(["algorithm", "cluster", "seed", "round"], observed=True).value.mean(), members


def round_axis(ax: Axes, metric: str = "accuracy", *, x: str = "round") -> None:
    """Whole rounds below; accuracy and purity from 0 to 1."""
    ax.set(xlabel=x, ylabel=metric)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if metric in ("accuracy", "purity"):
        ax.set_ylim(0, 1)


def client_curves(
    ax: Axes, record: pd.DataFrame, metric: str = "accuracy", *, seed: int | None = None, title: str | None = None
) -> None:
    """Every client of one seed (the first by default) in grey, their mean in black. A newcomer's line starts late."""
    seed = int(record["seed"].min()) if seed is None else seed
    rows = record[(record["metric"] == metric) & (record["seed"] == seed) & (record["client"] >= 0)]
    if rows.empty:
        there = ", ".join(map(str, record["metric"].unique()))
        raise ValueError(f"no client rows of {metric!r} at seed {seed}: the record has {there}")
    wide = rows.pivot_table(index="round", columns="client", values="value", observed=True)
    ax.plot(wide.index, wide, color=GREY, lw=0.6, alpha=0.6)
    ax.plot(wide.index, wide.mean(axis=1), color="black", lw=1.8)
    ax.add_line(Line2D([], [], color=GREY, lw=0.8, label="each client"))
    ax.add_line(Line2D([], [], color="black", lw=1.8, label="mean of the clients"))
    round_axis(ax, metric)
    ax.set_title(title or "")


def client_panels(record: pd.DataFrame, names: dict[str, str], **kw: Any) -> Figure:
    """`client_curves` side by side: one panel per algorithm of `names`, with its title."""
    fig, axes = panels(1, len(names), height=2.3, sharey=True)
    for ax, (name, title) in zip(axes, names.items(), strict=True):
        client_curves(ax, record[record["algorithm"] == name], title=title, **kw)
        ax.label_outer()
    legend(fig)
    return fig


def band(
    ax: Axes, frame: pd.DataFrame, label: str = "", *, k: int | None = None, x: Sequence[float] | None = None,
    seeds: bool = False, **line: Any,
) -> None:  # fmt: skip
    """Mean over the rows (seeds) with its 95 % t-interval; `seeds=True` draws each row thinly too.

    x is the frame's columns unless given. `k` chooses the look; by default the next that this panel has not used.
    """
    count = getattr(ax, "_bands", 0)
    ax._bands = count + 1  # type: ignore[attr-defined]
    how = look(count if k is None else k) | line
    at = np.asarray(frame.columns if x is None else x, dtype=float)
    mean, low, high = np.array([interval(frame[column]) for column in frame]).T
    if seeds:
        ax.plot(at, frame.T.to_numpy(), color=how["color"], lw=0.5, alpha=0.45)
    if np.isfinite(low).any():  # one seed has no interval
        ax.fill_between(at, low, high, where=np.isfinite(low), color=how["color"], alpha=0.18, lw=0)
    ax.plot(at, mean, label=label, markevery=(count % 5 * 0.025 + 0.02, 0.12) if len(at) > 12 else None, **how)


def curves(
    drawn: dict[str, dict[str, pd.DataFrame]], metric: str = "accuracy", *, x: str = "round", rows: int = 1,
    printed: dict[tuple[str, str], float] | None = None, at: float | None = None,
    looks: dict[str, dict[str, Any]] | None = None, cols: int | None = None, goal: float | None = None, **how: Any,
) -> Figure:  # fmt: skip
    """A panel per title, in it a band per label; diamonds are the paper's numbers of (title, label), last or `at`.

    A dotted line marks a `goal`.
    """
    fig, axes = panels(rows, -(-len(drawn) // rows), squeeze=False, **how)
    for ax, (title, frames) in zip(axes.flat, drawn.items(), strict=True):
        for label, frame in frames.items():
            band(ax, frame, label, **(looks or {}).get(label, {}))
            if (number := (printed or {}).get((title, label))) is not None:
                end = float(frame.columns[-1]) * 1.04 if at is None else at
                fill = ax.lines[-1].get_color() if ax.lines[-1].get_linestyle() == "-" else "white"
                ax.plot(end, number, "D", color=ax.lines[-1].get_color(), mfc=fill, ms=5.5, zorder=4)
        round_axis(ax, metric if ax in axes[:, 0] else "", x=x if ax in axes[-1] else "")
        ax.set_title(title)
        if goal is not None:
            ax.axhline(goal, color="black", lw=0.7, ls=":")
        if metric == "accuracy":
            ax.set_ylim(0, 1)
    if printed:
        axes.flat[-1].plot([], [], "D", color="black", mfc="white", ms=5.5, label="paper")
    legend(fig, cols=cols)
    return fig


def race(
    record: pd.DataFrame, metric: str, baseline: str, names: list[str], *, goal: float | None, named: str,
    printed: str = "",
) -> Figure:  # fmt: skip
    """Algorithms' means over seeds; the baseline and the `named` one bold, with intervals.

    With a goal: the share of the baseline's rounds saved by the named algorithm, beside the paper's; by the best one
    where that is an "up to".
    """
    looks = {name: {"k": k, "lw": 1.8 if name in (baseline, named) else 1.0} for k, name in enumerate(names)}
    frames = {str(name): by_round(rows, metric) for name, rows in record.groupby("algorithm", observed=True)}
    frames = {n: f if n in (baseline, named) else f.mean().to_frame().T for n, f in frames.items()}
    title = f"{record.seed.nunique()} seeds"
    if goal is not None:
        gain = rounds_saved(record, metric, goal, baseline).mean()
        label = str(gain.fillna(-np.inf).idxmax()) if "up to" in printed else named
        ours = f"{100 * gain[label]:.0f} % ({label})" if gain.notna()[label] else "unknown"
        title += f", iterations saved to {goal:g}: ours {ours}" + (f", paper {printed}" if printed else "")
    y = metric.replace("train_", "training ")
    fig = curves({title: frames}, y, x="iteration", looks=looks, goal=goal, width=4.8, height=2.6)
    fig.axes[0].set_title(title, fontsize=8)
    return fig


def legend(where: Figure | Axes, *, cols: int | None = None) -> None:
    """Above the panels, where no curve is; each label of the figure once."""
    axes = where.axes if isinstance(where, Figure) else [where]
    found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if isinstance(where, Figure):
        letters = max(map(len, found)) + 8  # a handle takes as much
        fits = max(1, int(where.get_figwidth() * 72 / (letters * 4.6)))
        cols = cols or int(np.ceil(len(found) / np.ceil(len(found) / fits)))
        order = [label for c in range(cols) for label in list(found)[c::cols]]  # matplotlib fills columns, we read rows
        where.legend([found[label] for label in order], order, loc="outside upper center", ncols=cols)
    else:
        handles, at = list(found.values()), (0, 1.02)
        where.legend(handles, list(found), loc="lower left", bbox_to_anchor=at, borderaxespad=0, ncols=cols or 1)


def heat(
    ax: Axes, matrix: Any, rows: Iterable[Any], cols: Iterable[Any], *, xlabel: str = "", ylabel: str = "",
    label: str = "", form: str = "{:.0f}", vmin: float | None = 0, vmax: float | None = None, cmap: str | None = None,
) -> None:  # fmt: skip
    """A heat map, first row on top. Cells carry their numbers (zeros stay empty); a colour bar if they cannot."""
    values = np.asarray(matrix, dtype=float)
    rows, cols = [str(r) for r in rows], [str(c) for c in cols]
    if values.shape != (len(rows), len(cols)):
        raise ValueError(f"matrix of shape {values.shape}, but {len(rows)} names for rows, {len(cols)} for columns")
    mesh = ax.pcolormesh(
        values, cmap=cmap or mpl.rcParams["image.cmap"], vmin=vmin, vmax=vmax, edgecolors="white",
        lw=0.4 if values.size < 2000 else 0, rasterized=values.size >= 2000,
    )  # fmt: skip
    ax.invert_yaxis()
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    fig: Any = ax.get_figure(root=True)
    box, inches = ax.get_position(), fig.get_size_inches() * 72
    wide, high = box.width * inches[0] / len(cols), box.height * inches[1] / len(rows)  # points a cell has
    turned = max(map(len, cols)) * 4.6 > wide
    every = max(1, int(np.ceil(9 / wide))) if turned else 1, max(1, int(np.ceil(9 / high)))  # names do not touch
    ax.set_xticks(np.arange(0.5, len(cols), every[0]), cols[:: every[0]], rotation=90 if turned else 0)
    ax.set_yticks(np.arange(0.5, len(rows), every[1]), rows[:: every[1]])
    ax.set(xlabel=xlabel, ylabel=ylabel)
    texts = [[form.format(v) if np.isfinite(v) and v != 0 else "" for v in row] for row in values]
    size = min(7.5, 0.62 * high, 0.82 * wide / (0.62 * max(1, *(len(s) for row in texts for s in row))))
    if size < 4.2:
        fig.colorbar(mesh, ax=ax, label=label, shrink=0.85, pad=0.02)
        return
    dark = np.asarray(mesh.norm(values))
    for i, j in np.argwhere(np.array(texts) != ""):
        ink = "white" if dark[i, j] > 0.58 else "black"
        ax.text(j + 0.5, i + 0.5, texts[i][j], size=size, ha="center", va="center", color=ink)


def heats(maps: dict[str, tuple[Any, Any, Any, str, str]], *, height: float = 3.4, **kw: Any) -> Figure:
    """A heat map per title side by side: matrix, names of rows, names of columns, label below, label on the left."""
    fig, axes = panels(1, len(maps), height=height, **kw)
    for ax, (title, (matrix, rows, cols, xlabel, ylabel)) in zip(axes, maps.items(), strict=True):
        heat(ax, matrix, rows, cols, xlabel=xlabel, ylabel=ylabel)
        ax.set_title(title)
    return fig


def planes(
    points: torch.Tensor, groups: dict[str, torch.Tensor], labels: torch.Tensor, marked: dict[str, Any]
) -> Figure:
    """Points in their two principal components: their groups by shape, then also their clusters by colour."""
    centred = points - points.mean(0)
    plane = (centred @ torch.linalg.svd(centred, full_matrices=False)[2][:2].T).numpy()  # (N, D) -> (N, 2)
    fig, axes = panels(1, 2, height=2.8, sharex=True, sharey=True)
    for k, (name, mask) in enumerate(groups.items()):
        axes[0].scatter(*plane[mask].T, 20, GREY, MARKERS[3 * k], label=name)
        axes[1].scatter(*plane[mask].T, 20, [PALETTE[c % len(PALETTE)] for c in labels[mask]], MARKERS[3 * k])
    for name, mask in marked.items():
        axes[1].scatter(*plane[mask].T, 80, "none", edgecolors="black", label=name)
    axes[0].set(title="before", xlabel="first component", ylabel="second component")
    axes[1].set(title=f"after: {len(labels.unique())} clusters by colour", xlabel="first component")
    legend(fig)
    return fig


def frame(col: int, row: int) -> Rectangle:
    """A frame around a cell of `heat`."""
    return Rectangle((col + 0.04, row + 0.04), 0.92, 0.92, fill=False, ec=PALETTE[2], lw=1.6, zorder=3)


def choices(joint: Joint, fed: Federation, seed: int, t: int) -> Figure:
    """Round t of `Joint`: what each device scores, framed what it picks; how far that moves each model, and by whom.

    Letters are the true clusters.
    """
    after = joint.init(joint.train.model.init(seed), fed, seed)
    for past in range(t + 1):
        before, (after, _) = after, joint.step(after, fed, seed, past)
    w, dw, (x, y, mask) = before.models, before.models - before.memory["previous"], joint.batch(fed, seed, t)
    found, count = decisions(joint.train.model, w, dw, x, y, mask), mask.sum(1, keepdim=True)  # (N, K) each
    panes = {
        "1  loss L": found[0],
        "2  similarity S": replace(joint, lam=1.0).score(*found, dw, count),
        f"3  {joint.lam:g} S $-$ {1 - joint.lam:g} L": joint.score(*found, dw, count),
    }
    fig, axes = panels(1, 4, height=2.6)
    devices, clusters = [f"{i + 1} ({chr(65 + g)})" for i, g in enumerate(fed.group.tolist())], range(1, len(w) + 1)
    for ax, (title, values) in zip(axes, panes.items(), strict=False):
        low, high = float(values.min()), float(values.max())
        heat(ax, values, devices, clusters, xlabel="model k", form="{:.2f}", vmin=low, vmax=high + (high - low))
        for i, k in enumerate(after.labels.tolist()):
            ax.add_patch(frame(k, i))
        ax.set_title(title)
    axes[0].set_ylabel("device (true cluster)")
    moved = (after.models - w).norm(dim=1)
    axes[3].bar(clusters, moved, color=PALETTE[1], width=0.6)
    for k, length in enumerate(moved.tolist()):
        who = ",".join(str(i + 1) for i in (after.labels == k).nonzero()[:, 0].tolist())
        axes[3].text(k + 1, length, who or "none", ha="center", va="bottom", fontsize=7.5)
    axes[3].set(xlabel="model k", ylabel="length of its step", xticks=clusters)
    axes[3].set_title("4  models move")
    return fig


def arrows(ax: Axes, starts: Any, ends: Any, names: Sequence[str], angles: Sequence[str] = ()) -> None:
    """Two updates as arrows in the plane, "AB" from A to B; the gap between their ends is dotted.

    `angles` names each arrow's angle with the outward direction of the gap, drawn unless it is 0 or 180 degrees.
    """
    starts, ends = np.asarray(starts, dtype=float), np.asarray(ends, dtype=float)
    reach = 0.25 * max(float(np.ptp(np.concatenate([starts, ends]), axis=0).max()), 1e-9)
    for k, (a, b, name) in enumerate(zip(starts, ends, names, strict=True)):
        shape = {"arrowstyle": "-|>", "color": PALETTE[k + 1], "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", b, a, arrowprops=shape)
        along, out = ((v / max(float(np.linalg.norm(v)), 1e-9)) for v in (b - a, b - ends[1 - k]))
        flat = abs(float(out @ along)) > 0.99
        inward = np.array([0.0, 1.0]) if flat else -(out + along) if out @ along < 0.5 else (out @ along) * along - out
        inward /= float(np.linalg.norm(inward))
        for point, letter, where in ((a, name[0], -along), (b, name[1], inward)):
            if letter == name[1] or k == 0 or (a != starts[0]).any():  # a common start is named once
                ax.annotate(letter, point, tuple(10 * where), textcoords="offset points", ha="center", va="center")
        ends_at = np.rad2deg([np.arctan2(*out[::-1]), np.arctan2(*along[::-1])])
        swept = (ends_at[1] - ends_at[0] + 180) % 360 - 180
        if len(angles) and not flat:
            first, last = sorted((ends_at[0], ends_at[0] + swept))
            ax.add_patch(Arc(tuple(b), 2 * reach, 2 * reach, theta1=first, theta2=last, color="black", lw=0.8))
            for ray, style in ((out, ":"), (along, "--")):
                ax.plot(*np.stack([b, b + 1.3 * reach * ray]).T, color=GREY, ls=style, lw=1)
            middle = np.deg2rad((first + last) / 2)
            x, y = b + 1.5 * reach * np.array([np.cos(middle), np.sin(middle)])
            ax.text(x, y, angles[k], ha="center", va="center")
    ax.plot(*np.stack(ends).T, color=GREY, ls=":", lw=1.2)
    ax.plot(*np.concatenate([starts, ends]).T, ls="", marker="o", ms=3, color="black")
    ax.margins(0.25)
    ax.set_aspect("equal", "datalim")
    ax.grid(False)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def update_pair(ax: Axes, title: str, starts: Any, ends: Any, names: Sequence[str]) -> None:
    """Two updates with their angles to the gap between their ends, divergence and distance (DCFL, Eq. 1 and 2)."""
    a, b = (torch.tensor(points, dtype=torch.float64) for points in (starts, ends))
    gap = b[0] - b[1]
    outward = torch.stack([gap, -gap])  # at either end
    alpha, beta = torch.cosine_similarity(b - a, outward).acos().rad2deg()
    omega, d = (measure(a, b)[0, 1] for measure in (geometry.divergence, geometry.distance))
    arrows(ax, starts, ends, names, (r"$\alpha$", r"$\beta$"))
    angles = rf"$\alpha$ = {alpha:.0f}°, $\beta$ = {beta:.0f}°"
    ax.set_title(f"{title}\n{angles}\n$\\omega$ = {omega:.2f}, gap = {gap.norm():.2f}, d = {d:.2f}", fontsize=7.5)


def lineage(ax: Axes, record: pd.DataFrame) -> None:
    """The tree of one run's splits: a line per cluster, a fork per split; the numbers are its clients of each group.

    Nothing is drawn to scale of time: the splits stand side by side, the first number of a fork's name is its round.
    """
    rows = record[(record.metric == "accuracy") & (record.client >= 0)]
    labels, group = rows.pivot(index="round", columns="client", values="cluster"), rows.groupby("client").group.first()
    before, leaves, forks, tables = pd.Series(0, labels.columns), [0], [], []
    for t, now in labels.iterrows():
        new = sorted({*now} - {*leaves})
        for child in new:
            parent = int(before[now == child].iloc[0])
            leaves.insert(leaves.index(parent) + 1, int(child))
            forks.append((t, parent, int(child)))
        tables += [pd.crosstab(now, group)] * len(new)
        before = now
    tables = [pd.crosstab(before * 0, group), *tables, pd.crosstab(before, group)]  # start, after each split, end
    end = len(forks) + 1
    for y, k in enumerate(leaves):
        mine = [x for x, (_, parent, child) in enumerate(forks, 1) if k in (parent, child)]
        born = mine[0] if k else 0
        ax.plot([born, end], [y, y], color=PALETTE[1], lw=2)
        for x in sorted({born, *mine, end}):
            known = tables[x].loc[k] if k in tables[x].index else tables[x].iloc[0] * 0
            where: Any = {"va": "center", "weight": "bold"} if x == end else {"va": "bottom"}
            ax.text(x + 0.05, y - 0.06 * (x < end), " · ".join(map(str, known)), size=7.5, **where)
    for x, (_, parent, child) in enumerate(forks, 1):
        ax.plot([x, x], [leaves.index(parent), leaves.index(child)], color=PALETTE[2], lw=1.2, ls=":")
    names = [f"split {x}\nround {t}" for x, (t, *_) in enumerate(forks, 1)]
    ax.set_xticks(range(end + 1), ["start", *names, f"end\nround {labels.index[-1]}"])
    ax.set_yticks(range(len(leaves)), [f"cluster {k}" for k in leaves])
    ax.set(xlim=(-0.1, end + 0.9), ylim=(len(leaves) - 0.5, -0.7))
    ax.grid(False)


def footer(fig: Figure, text: str) -> None:
    """Small print below everything else: tier, seeds, data."""
    width, height = fig.get_size_inches()
    lines = textwrap.fill(text, int(width * 72 / 3.5))
    fig.text(0.005, -0.05 / height, lines, size=6.5, color="#555555", ha="left", va="top")


def save(fig: Figure, path: str | os.PathLike) -> list[Path]:
    """`path`.svg and `path`.png, each written aside and moved into place; the same figure gives the same bytes."""
    files = [Path(f"{path}.svg"), Path(f"{path}.png")]
    files[0].parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for file, about in zip(files, ({"Date": None, "Creator": None}, {"Software": None}), strict=True):
            buffer = BytesIO()
            fig.savefig(buffer, format=file.suffix[1:], metadata=about)
            write(file, lambda aside: aside.write_bytes(buffer.getvalue()))  # noqa: B023  called at once
    return files
