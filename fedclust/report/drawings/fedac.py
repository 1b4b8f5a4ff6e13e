"""How runs of methods that split their clusters went: what a record says of the splits and of what led to them."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.stats import hypergeom

from fedclust.algorithms.base import State
from fedclust.algorithms.fedac import FedAC
from fedclust.geometry import cosine_to
from fedclust.metrics import clustering
from fedclust.report import plots
from fedclust.report.plots import by_round
from fedclust.rng import stream

Conditions = dict[str, pd.DataFrame]  # "dloss" and "theta" of runs with one cluster: a row per seed, a column per round


def wobble(frame: pd.DataFrame) -> pd.Series:
    """Standard deviation around the straight line through the last quarter of the rounds, per seed."""
    tail = frame.iloc[:, -max(4, frame.shape[1] // 4) :]
    trend = [np.polyval(np.polyfit(tail.columns, y, 1), tail.columns) for y in tail.to_numpy()]
    return (tail - np.stack(trend)).std(axis=1, ddof=0)


def restless(frame: pd.DataFrame, since: pd.Series) -> pd.Series:
    """Mean change from round to round after the round `since`, per seed."""
    change = frame.diff(axis=1).abs()
    later = change.columns.to_numpy() > since.reindex(frame.index).to_numpy()[:, None]
    return change.where(later).mean(axis=1)


def summary(record: pd.DataFrame) -> pd.DataFrame:
    """One row per seed. A run that never splits has its number of rounds as `first split`, and -1 as `last split`."""
    accuracy, server = by_round(record), record[record.client == -1]
    sums = server.groupby(["seed", "metric"], observed=True).value.sum().unstack()
    split = by_round(record, "splits").reindex_like(accuracy).fillna(0) > 0
    return pd.DataFrame({
        "final accuracy": accuracy.iloc[:, -max(1, accuracy.shape[1] // 10) :].mean(axis=1),
        "wobble": wobble(accuracy),
        "loss wobble": wobble(by_round(record, "loss")),
        "ARI": by_round(record, "ari").iloc[:, -1],
        "clusters": by_round(record, "clusters").iloc[:, -1],
        "first split": split.idxmax(axis=1).where(split.any(axis=1), accuracy.shape[1]),
        "last split": split.T[::-1].idxmax().where(split.any(axis=1), -1),
        "splits": sums.get("splits", 0 * sums.up),
        "extra trainings": sums.extra,
        "messages": sums.up + sums.down,
        "MB": sums.bytes / 1e6,
    })  # fmt: skip


def conditions(record: pd.DataFrame) -> Conditions:
    return {what: by_round(record, what) for what in ("dloss", "theta")}


def first(seen: Conditions, alpha: float, beta: float) -> pd.Series:
    """Rounds until FedAC would split for the first time, per seed; infinite if it never does.

    From runs that never split: until its first split a run with any thresholds is the same.
    """
    holds = (seen["dloss"] < alpha) & (seen["theta"] < beta)
    return (holds.idxmax(axis=1) + 1.0).where(holds.any(axis=1), np.inf)


def beside(one: Conditions, other: Conditions, names: Sequence[str]) -> pd.DataFrame:
    """Both conditions of two runs in the rounds that both have, means over the seeds that both have."""
    rounds, seeds = one["theta"].columns, one["theta"].index
    shown = {f"{w}, {n}": c[w].loc[seeds, rounds].mean() for w in one for n, c in zip(names, (one, other), strict=True)}
    return pd.DataFrame(shown).rename_axis("round").reset_index()


def draws(record: pd.DataFrame) -> pd.DataFrame:
    """Both conditions of every round, beside the share of the smaller of two groups among those who trained."""
    trained = record[(record.metric == "trained") & (record.value == 1)].groupby(["seed", "round"]).group.mean()
    shown = {what: frame.stack() for what, frame in conditions(record).items()}
    return pd.DataFrame({"smaller": np.minimum(trained, 1 - trained)} | shown).reset_index()


def equal_updates(share: Any, c: float) -> Any:
    """The smaller group's cosine to the mean if updates are equally long and c is the cosine between the groups."""
    return (share + (1 - share) * c) / np.sqrt(share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * c)


def can_fire(clients: int, drawn: int, c: float) -> float:
    """How often a draw from two groups of equal size has such a cosine below 0: c < -j / (drawn - j)."""
    fires = [j for j in range(1, (drawn + 1) // 2) if c < -j / (drawn - j)]
    return float(2 * hypergeom(clients, clients // 2, drawn).pmf(fires).sum())


def shares(seen: Conditions, alpha: float, beta: float, begin: int) -> pd.DataFrame:
    """How often each condition of FedAC held in the first `begin` rounds and later; the rarer one decides."""
    still, apart = (seen["dloss"] < alpha).to_numpy(), (seen["theta"] < beta).to_numpy()
    rows = []
    for name, part in ((f"first {begin}", slice(begin)), ("later", slice(begin, None))):
        a, b = still[:, part], apart[:, part]
        rarer = "neither" if a.mean() == b.mean() else "loss" if a.mean() < b.mean() else "angle"
        rows.append([name, *(f"{100 * v.mean():.0f} %" for v in (a, b, a & b)), rarer])
    return pd.DataFrame(rows, columns=["rounds", "loss condition holds", "angle condition holds", "both", "decides"])


def angles(seen: pd.DataFrame, alpha: float, fraction: float, clients: int) -> Figure:
    """`draws` beside what equal updates would give, and how often a draw from a mixed cluster can fire, by its size."""
    share, sizes = np.linspace(0.02, 0.5, 100), list(range(10, clients + 1, 2))
    fig, axes = plots.panels(1, 2, height=2.6)
    for k, c in enumerate((-0.3, -0.6, -0.9), 1):
        how = plots.look(k) | {"marker": ""}
        axes[0].plot(share, equal_updates(share, c), label=f"equal updates, c = {c}", **how)
        fires = [can_fire(n, max(int(fraction * n), 1), c) for n in sizes]
        axes[1].plot(sizes, fires, drawstyle="steps-mid", **how)
    for still, part in seen.groupby(seen["dloss"] < alpha):
        at = part["smaller"] + 0.01 * (part["round"] % 3 - 1)  # so that equal draws do not hide each other
        face, holds = ("black", "holds") if still else ("none", "fails")
        axes[0].plot(at, part["theta"], "ko", ms=3.5, mfc=face, label=f"a round, loss condition {holds}")
    axes[0].set(xlabel="share of the smaller group in the draw", ylabel="$\\theta$", ylim=(-1, 1))
    axes[1].set(xlabel="clients in the cluster, half of each group", ylabel="draws that can fire", ylim=(-0.02, 1))
    plots.legend(fig)
    return fig


def curves(records: Mapping[str, pd.DataFrame], metric: str, title: str) -> Figure:
    """One run, its splits as triangles, beside the mean over seeds."""
    frames = {name: by_round(record, metric) for name, record in records.items()}
    seeds = next(iter(frames.values())).index
    single = {name: frame.iloc[:1] for name, frame in frames.items()}
    names = {"FedAvg": 0, "FedAC": 1, "FedACP": 2}
    looks: Any = {name: {"k": names.get(name, 3 + i)} for i, name in enumerate(frames)}
    splits = {name: by_round(record, "splits").reindex(seeds[:1]) for name, record in records.items()}
    counts = {name: frame.dropna(axis=1).sum() for name, frame in splits.items()}
    mark = " (▼ a split)" if any(count.sum() for count in counts.values()) else ""
    panels = {f"{title}, seed {seeds[0]}{mark}": single, f"{title}, {len(seeds)} seed{'s' * (len(seeds) > 1)}": frames}
    fig = plots.curves(panels, metric, looks=looks, sharey=True, height=2.3)
    if metric == "loss":  # single rounds go off the scale, and their intervals even more
        fig.axes[0].set_ylim(0, 1.1 * max(float(frame.mean().quantile(0.98)) for frame in frames.values()))
    for name, count in counts.items():
        at = count.index[count > 0]
        how: Any = {"color": plots.PALETTE[looks[name]["k"]], "mec": "black", "zorder": 5, "ms": 7}
        fig.axes[0].plot(at, single[name].iloc[0].reindex(at), "v", **how)
    return fig


def tree(record: pd.DataFrame, title: str) -> Figure:
    """`plots.lineage` of the record's first seed."""
    fig, ax = plots.panels(height=2.6)
    plots.lineage(ax, record[record.seed == record.seed.min()])
    ax.set_title(f"{title}, seed {record.seed.min()}; clients of group A · B · C ...")
    return fig


def both(seen: Mapping[str, Conditions], alpha: float, beta: float) -> Figure:
    """Both conditions of one run per name, by round; they hold below the thick lines."""
    names = {"dloss": f"|change of the loss|, $\\alpha$ = {alpha:g}", "theta": f"$\\theta$, $\\beta$ = {beta:g}"}
    drawn = {title: {name: c[what].iloc[:1] for name, c in seen.items()} for what, title in names.items()}
    fig = plots.curves(drawn, "", height=2.6, looks={name: {"lw": 1.1} for name in seen})
    for ax, level, kind in zip(fig.axes, (alpha, beta), ("log", "linear"), strict=True):
        ax.axhline(level, color="black", lw=2.5, zorder=1)
        ax.set_yscale(kind)
    return fig


def waits(
    axes: Any, seen: Mapping[str, Conditions], alphas: Sequence[float], betas: Sequence[float], unit: float
) -> None:
    """Rounds until the first split for any thresholds: median over seeds, empty where half of them never split."""
    for ax, (name, c) in zip(axes, seen.items(), strict=True):
        rounds = [[first(c, a * unit, b).median() for a in alphas] for b in betas]
        last = ax is not axes[0]
        how: Any = {
            "vmax": c["theta"].shape[1] / 2,
            "xlabel": "$\\alpha$",
            "ylabel": "" if last else "$\\beta$, a cosine",
        }
        plots.heat(ax, rounds, betas, alphas, **how)
        ax.set_title(f"rounds to the first split,\n{name}")


def plane(at: Sequence[int] = (0, 1, 25), size: int = 12) -> Figure:
    """FedAC, fig. 1: clients with optima around two points, and their split if it came in the rounds `at`.

    The common model starts far off, where the two groups lie one behind the other, and moves as FedAvg does.
    """
    draw, w = stream(0, "plane"), torch.tensor([-5.5, 0.3])
    group, everyone = torch.arange(2 * size) // size, torch.arange(2 * size)
    optima = torch.tensor([[1.5, 0.0], [-1.5, 0.0]])[group] + 0.7 * torch.randn(2 * size, 2, generator=draw)
    fig, axes = plots.panels(1, len(at), height=1.9, sharex=True, sharey=True)
    fed: Any = SimpleNamespace(ids=everyone)
    for t in range(max(at) + 1):
        update = 0.3 * (optima - w) + 0.1 * torch.randn(2 * size, 2, generator=draw)
        if t in at:
            ax = axes[list(at).index(t)]
            start = State(w[None], torch.zeros_like(everyone))
            sides = FedAC(cast(Any, None)).split(start, fed, w, everyone, update, 2 * size).labels
            arrow = 1.5 * update / update.norm(dim=1, keepdim=True)
            for g, k in ((g, k) for g in (0, 1) for k in (0, 1)):
                mine, color = (group == g) & (sides == k), plots.PALETTE[k + 1]
                how: Any = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.005, "color": color}
                ax.quiver(*w.expand(2 * size, 2)[mine].T, *arrow[mine].T, **how)
                name = f"group {'AB'[g]}, half {k + 1} of the split"
                ax.plot(*optima[mine].T, "os"[g], color=color, ms=4.5, mec="white", mew=0.4, label=name)
            ax.plot(*w, "X", color="black", ms=7, label="common model")
            theta, ari = cosine_to(update, update.mean(0, keepdim=True)).min(), clustering(sides, group)["ari"]
            ax.set_title(f"round {t}: $\\theta$ = {theta:.2f}, ARI of the split {ari:.2f}", fontsize=8)
            ax.set(aspect="equal", xlabel="first parameter", ylabel="second parameter" if t == at[0] else "")
        w = w + update.mean(0)
    plots.legend(fig, cols=3)
    return fig
