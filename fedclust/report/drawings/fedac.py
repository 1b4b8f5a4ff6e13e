"""FedAC's own figures: runs whose clusters are split, and what led to the splits."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import hypergeom

from fedclust.algorithms.base import State
from fedclust.algorithms.fedac import FedAC
from fedclust.geometry import cosine
from fedclust.metrics import clustering
from fedclust.report import plots
from fedclust.report.readings import Conditions, by_round, first_split
from fedclust.rng import stream


def angles(seen: pd.DataFrame, alpha: float, fraction: float, clients: int) -> Figure:
    """The angle to the mean by the share of the smaller group, measured and for equal updates.

    Beside it: how often a draw from a mixed cluster can fire, by the cluster's size.
    """
    share, sizes = np.linspace(0.02, 0.5, 100), list(range(10, clients + 1, 2))
    fig, axes = plots.panels(1, 2, height=2.6)
    for k, c in enumerate((-0.3, -0.6, -0.9), 1):
        how = plots.look(k) | {"marker": ""}
        axes[0].plot(share, equal_updates(share, c), label=f"equal updates, c = {c}", **how)
        fires = [can_fire(n, max(int(fraction * n), 1), c) for n in sizes]
        axes[1].plot(sizes, fires, drawstyle="steps-mid", **how)
    for still, part in seen.groupby(seen["dloss"] < alpha):
        at = part["smaller"] + 0.01 * (
            part["round"] % 3 - 1
        )  # equal draws must not hide each other
        face, holds = ("black", "holds") if still else ("none", "fails")
        label = f"a round, loss condition {holds}"
        axes[0].plot(at, part["theta"], "ko", ms=3.5, mfc=face, label=label)
    below = "share of the smaller group in the draw"
    axes[0].set(xlabel=below, ylabel="$\\theta$", ylim=(-1, 1))
    below = "clients in the cluster, half of each group"
    axes[1].set(xlabel=below, ylabel="draws that can fire", ylim=(-0.02, 1))
    plots.legend(fig)
    return fig


def equal_updates(share: Any, c: float) -> Any:
    """The smaller group's cosine to the mean of all updates, if these are equally long.

    c is the cosine between the groups.
    """
    other = 1 - share
    return (share + other * c) / np.sqrt(share**2 + other**2 + 2 * share * other * c)


def can_fire(clients: int, drawn: int, c: float) -> float:
    """How often such a cosine is below 0 in a draw from two groups of equal size."""
    fires = [j for j in range(1, (drawn + 1) // 2) if c < -j / (drawn - j)]
    return float(2 * hypergeom(clients, clients // 2, drawn).pmf(fires).sum())


def curves(records: Mapping[str, pd.DataFrame], metric: str, title: str) -> Figure:
    """One run with its splits as triangles, with the mean over seeds."""
    frames = {name: by_round(record, metric) for name, record in records.items()}
    seeds = next(iter(frames.values())).index
    single = {name: frame.iloc[:1] for name, frame in frames.items()}
    counts = {
        name: by_round(record, "splits").reindex(seeds[:1]).dropna(axis=1).sum()
        for name, record in records.items()
    }
    mark = " (▼ a split)" if any(count.sum() for count in counts.values()) else ""
    plural = "s" * (len(seeds) > 1)
    panels = {
        f"{title}, seed {seeds[0]}{mark}": single,
        f"{title}, {len(seeds)} seed{plural}": frames,
    }
    fig = plots.curves(panels, metric, sharey=True, height=2.3)
    if metric == "loss":  # leaps of single rounds are what the figure is about
        plots.log_axis(fig.axes[0])
    for name, count in counts.items():
        at = count.index[count > 0]
        how: Any = {"color": plots.look(name)["color"], "mec": "black", "zorder": 5, "ms": 7}
        fig.axes[0].plot(at, single[name].iloc[0].reindex(at), "v", **how)
    return fig


def tree(record: pd.DataFrame, title: str) -> Figure:
    """The tree of splits of the record's first seed."""
    fig, ax = plots.panels(height=2.6)
    lineage(ax, record[record.seed == record.seed.min()])
    ax.set_title(f"{title}, seed {record.seed.min()}; clients of group A · B · C ...")
    return fig


def lineage(ax: Axes, record: pd.DataFrame) -> None:
    """The tree of one run's splits: a line per cluster, a fork per split.

    The numbers are a cluster's clients of each group. Splits have equal distances on the axis.
    """
    rows = record[(record.metric == "accuracy") & (record.client >= 0)]
    labels = rows.pivot(index="round", columns="client", values="cluster")
    group = rows.groupby("client").group.first()
    before, leaves, forks, tables = pd.Series(0, labels.columns), [0], [], []
    for t, now in labels.iterrows():
        new = sorted({*now} - {*leaves})
        for child in new:
            parent = int(before[now == child].iloc[0])
            leaves.insert(leaves.index(parent) + 1, int(child))
            forks.append((t, parent, int(child)))
        tables += [pd.crosstab(now, group)] * len(new)
        before = now
    # at the start, after each split, at the end
    tables = [pd.crosstab(before * 0, group), *tables, pd.crosstab(before, group)]
    end = len(forks) + 1
    for y, k in enumerate(leaves):
        mine = [x for x, (_, parent, child) in enumerate(forks, 1) if k in (parent, child)]
        born = mine[0] if k else 0
        ax.plot([born, end], [y, y], color=plots.PALETTE[1], lw=2)
        for x in sorted({born, *mine, end}):
            known = tables[x].loc[k] if k in tables[x].index else tables[x].iloc[0] * 0
            last: Any = {"va": "center", "weight": "bold"}
            where = last if x == end else {"va": "bottom"}
            text = " · ".join(map(str, known))
            ax.text(x + 0.05, y - 0.06 * (x < end), text, size=7.5, **where)
    for x, (_, parent, child) in enumerate(forks, 1):
        ends = [leaves.index(parent), leaves.index(child)]
        ax.plot([x, x], ends, color=plots.PALETTE[2], lw=1.2, ls=":")
    names = [f"split {x}\nround {t}" for x, (t, *_) in enumerate(forks, 1)]
    ax.set_xticks(range(end + 1), ["start", *names, f"end\nround {labels.index[-1]}"])
    ax.set_yticks(range(len(leaves)), [f"cluster {k}" for k in leaves])
    ax.set(xlim=(-0.1, end + 0.9), ylim=(len(leaves) - 0.5, -0.7))
    ax.grid(False)


def both(seen: Mapping[str, Conditions], alpha: float, beta: float) -> Figure:
    """Both conditions of one run per name, by round; they hold below the thick lines."""
    titles = {
        "dloss": f"|change of the loss|, $\\alpha$ = {alpha:g}",
        "theta": f"$\\theta$, $\\beta$ = {beta:g}",
    }
    drawn = {
        title: {name: conditions[what].iloc[:1] for name, conditions in seen.items()}
        for what, title in titles.items()
    }
    fig = plots.curves(drawn, "", height=2.6, looks={name: {"lw": 1.1} for name in seen})
    for ax, level, scale in zip(fig.axes, (alpha, beta), ("log", "linear"), strict=True):
        ax.axhline(level, color=plots.PALETTE[4], lw=3.5, zorder=1, label="holds below")
        ax.set_yscale(scale)
    fig.legends[0].remove()
    plots.legend(fig)
    return fig


def waits(
    axes: Any,
    seen: Mapping[str, Conditions],
    alphas: Sequence[float],
    betas: Sequence[float],
    unit: float,
) -> None:
    """Rounds until the first split for any thresholds: the median over seeds.

    A cell is empty where half of the seeds never split.
    """
    for ax, (name, conditions) in zip(axes, seen.items(), strict=True):
        rounds = [[first_split(conditions, a * unit, b).median() for a in alphas] for b in betas]
        ylabel = "$\\beta$, a cosine" if ax is axes[0] else ""
        most = conditions["theta"].shape[1] / 2
        plots.heat(ax, rounds, betas, alphas, vmax=most, xlabel="$\\alpha$", ylabel=ylabel)
        ax.set_title(f"rounds to the first split,\n{name}")


def sensitivity(
    seen: Mapping[str, Conditions],
    alphas: Sequence[float],
    betas: Sequence[float],
    unit: float,
    ari: Sequence[Sequence[float]],
    title: str,
) -> Figure:
    """`waits` for two sets of runs, and the ARI of real ones; the paper's choice is framed."""
    fig, axes = plots.panels(1, 3, height=2.3)
    waits(axes[:2], seen, alphas, betas, unit)
    alphas_run, betas_run = ("5", "50", "any"), (-0.5, 0.0, 0.5)
    plots.heat(axes[2], ari, betas_run, alphas_run, xlabel="$\\alpha$", form="{:.2f}", vmax=1)
    axes[2].set_title(title)
    for ax, cell in zip(axes, ((2, 3), (2, 3), (0, 1)), strict=True):
        ax.add_patch(plots.frame(*cell))
    return fig


def plane(at: Sequence[int] = (0, 1, 25), size: int = 12) -> Figure:
    """FedAC, fig. 1: clients with optima around two points, and their split in the rounds `at`.

    The common model starts far off, where the two groups lie one behind the other, and moves as
    FedAvg does.
    """
    draw, w = stream(0, "plane"), torch.tensor([-5.5, 0.3])
    everyone = torch.arange(2 * size)
    group = everyone // size
    centres = torch.tensor([[1.5, 0.0], [-1.5, 0.0]])
    optima = centres[group] + 0.7 * torch.randn(2 * size, 2, generator=draw)
    fig, axes = plots.panels(1, len(at), height=1.9, sharex=True, sharey=True)
    fed: Any = SimpleNamespace(ids=everyone)
    for t in range(max(at) + 1):
        update = 0.3 * (optima - w) + 0.1 * torch.randn(2 * size, 2, generator=draw)
        if t in at:
            ax = axes[list(at).index(t)]
            start = State(w[None], torch.zeros_like(everyone))
            method = FedAC(cast(Any, None))
            halves = method.divide(start, fed, w, everyone, update, 2 * size).labels
            two_groups(ax, w, optima, update, group, halves)
            theta = cosine(update, update.mean(0, keepdim=True)).min()
            ari = clustering(halves, group)["ari"]
            title = f"round {t}: $\\theta$ = {theta:.2f}, ARI of the split {ari:.2f}"
            ax.set_title(title, fontsize=8)
            ylabel = "second parameter" if t == at[0] else ""
            ax.set(aspect="equal", xlabel="first parameter", ylabel=ylabel)
        w = w + update.mean(0)
    plots.legend(fig, cols=3)
    return fig


def two_groups(ax: Axes, w: Any, optima: Any, update: Any, group: Any, halves: Any) -> None:
    """Each client's optimum and the direction of its update, in the colour of its half."""
    arrow = 1.5 * update / update.norm(dim=1, keepdim=True)
    for g, k in ((g, k) for g in (0, 1) for k in (0, 1)):
        mine, color = (group == g) & (halves == k), plots.PALETTE[k + 1]
        scale: Any = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.005}
        ax.quiver(*w.expand(len(group), 2)[mine].T, *arrow[mine].T, color=color, **scale)
        how: Any = {"color": color, "ms": 4.5, "mec": "white", "mew": 0.4}
        name = f"group {'AB'[g]}, half {k + 1} of the split"
        ax.plot(*optima[mine].T, "os"[g], label=name, **how)
    ax.plot(*w, "X", color="black", ms=7, label="common model")
