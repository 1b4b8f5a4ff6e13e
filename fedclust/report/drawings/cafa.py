"""CAFA's own figure: the clusters of clients before and after CBCC."""

from typing import Any

import torch
from matplotlib.figure import Figure

from fedclust.report import plots


def planes(
    points: torch.Tensor,
    groups: dict[str, torch.Tensor],
    labels: torch.Tensor,
    marked: dict[str, Any],
) -> Figure:
    """Points in their two principal components: groups by shape, then also clusters by colour."""
    centred = points - points.mean(0)
    axis = torch.linalg.svd(centred, full_matrices=False)[2][:2]
    plane = (centred @ axis.T).numpy()  # (N, D) -> (N, 2)
    fig, axes = plots.panels(1, 2, height=2.8, sharex=True, sharey=True)
    for k, (name, mask) in enumerate(groups.items()):
        shape, colors = plots.MARKERS[3 * k], [plots.PALETTE[c % 8] for c in labels[mask]]
        axes[0].scatter(*plane[mask].T, 20, plots.GREY, shape, label=name)
        axes[1].scatter(*plane[mask].T, 20, colors, shape)
    for name, mask in marked.items():
        axes[1].scatter(*plane[mask].T, 80, "none", edgecolors="black", label=name)
    axes[0].set(title="before", xlabel="first component", ylabel="second component")
    title = f"after: {len(labels.unique())} clusters by colour"
    axes[1].set(title=title, xlabel="first component")
    plots.legend(fig)
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
