"""CAFA's own figure: the clusters of clients before and after CBCC."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from fedclust.report import plots


def planes(
    points: torch.Tensor,
    groups: dict[str, torch.Tensor],
    labels: torch.Tensor,
    marked: dict[str, Any],
) -> Figure:
    """Points in their two principal components: groups by shape, then clusters by letter."""
    centred = points - points.mean(0)
    axis = torch.linalg.svd(centred, full_matrices=False)[2][:2]
    plane = (centred @ axis.T).numpy()  # (N, D) -> (N, 2)
    fig, axes = plots.panels(1, 2, height=3.2, sharex=True, sharey=True)
    for k, (name, mask) in enumerate(groups.items()):
        how = plots.look(k) | {"ls": "", "mfc": "none" if k else None, "ms": 5}
        axes[0].plot(*plane[mask].T, label=name, **how)
    for i, (x, y) in enumerate(plane):
        c = int(labels[i])
        axes[1].text(x, y, chr(65 + c), ha="center", va="center", size=8)
    for name, mask in marked.items():
        middle = plane[mask].mean(0)
        far = max(1.15 * float(np.abs(plane[mask] - middle).max()), 0.035 * float(np.ptp(plane)))
        axes[1].add_patch(Circle(tuple(middle), far, fill=False, ls="--", lw=1, label=name))
    axes[0].set(title="before", xlabel="first component", ylabel="second component")
    title = f"after: {len(labels.unique())} clusters by letter"
    axes[1].set(title=title, xlabel="first component")
    plots.legend(fig)
    return fig


def stages(inside: pd.DataFrame, vectors: torch.Tensor, labels: list[int]) -> Figure:
    """CAFA, fig. 1: the class shares by cluster, who judges whom how right, and the weights."""
    last = inside[inside["round"] == inside["round"].max()]
    right = last[last.metric == "right"].pivot(index="client", columns="other", values="value")
    weights = last[last.other < 0].pivot(index="client", columns="metric", values="value")
    weights = weights[["CBCC", "ABFA", "CAFA"]]
    order = sorted(range(len(labels)), key=lambda i: (-labels.count(labels[i]), labels[i]))
    rows = []
    for i in order:
        size = f"{labels.count(labels[i])}/{len(labels)}"
        rows.append(f"{'▸ ' * (i in right.index)}{i}  {chr(65 + labels[i])} {size}")
    shares = (100 * vectors[order], rows, range(vectors.shape[1]), "class")
    maps = {
        "CBCC: class shares (%)": (*shares, "client, cluster, $w^K$"),
        "ABFA: accuracy (%)": (
            100 * right,
            right.index,
            right.columns,
            "judged by client",
            "model of client",
        ),
        "weights (%)": (100 * weights, weights.index, weights.columns, "", "client"),
    }
    return heats(maps, height=3.3, width_ratios=(1.5, 1, 0.6))


def noise(measured: dict[tuple[str, str], pd.DataFrame], claimed: list[float]) -> Figure:
    """FedAvg's seeds around their mean, and CAFA's gains seed by seed, by profile."""
    fig, axes = plots.panels(1, 2, height=2.4, sharey=True)
    for ax, profile in zip(axes, ("paper", "code"), strict=True):
        fedavg = 100 * measured[profile, "FedAvg"][["best", 5]]
        gain = 100 * measured[profile, "CAFA"][["best", 5]] - fedavg
        ring: Any = {"marker": "o", "ls": "", "mfc": "none"}
        ax.plot([0, 1], (fedavg - fedavg.mean()).T, color=plots.look("FedAvg")["color"], **ring)
        ax.plot([2, 3], gain.T, color=plots.look("CAFA")["color"], **ring)
        ax.plot([2.25, 3.25], [100 * g for g in claimed], "D", color="black", mfc="white")
        ticks = [
            f"{a}\n{b}" for a in ("FedAvg alone", "CAFA's gain") for b in ("best", "last fifth")
        ]
        ax.set(title=f"profile: {profile}", xticks=range(4), xticklabels=ticks)
    axes[0].set_ylabel("points of accuracy")
    return fig


def heats(maps: dict[str, tuple[Any, ...]], *, height: float = 3.4, **options: Any) -> Figure:
    """A heat map per title, side by side.

    Each is a matrix, names of rows, names of columns, the label below and the label on the left.
    """
    fig, axes = plots.panels(1, len(maps), height=height, **options)
    for ax, (title, (matrix, rows, cols, below, left)) in zip(axes, maps.items(), strict=True):
        plots.heat(ax, matrix, rows, cols, xlabel=below, ylabel=left)
        ax.set_title(title)
    return fig
