"""CAFA's own figure: the clusters of clients before and after CBCC."""

from typing import Any

import numpy as np
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
        letter = {"ha": "center", "va": "center", "size": 8, "weight": "bold"}
        axes[1].text(x, y, chr(65 + c), color=plots.PALETTE[c % 8], **letter)
    for name, mask in marked.items():
        middle = plane[mask].mean(0)
        far = 1.15 * float(np.abs(plane[mask] - middle).max())
        axes[1].add_patch(Circle(tuple(middle), far, fill=False, ls="--", lw=1, label=name))
    axes[0].set(title="before", xlabel="first component", ylabel="second component")
    title = f"after: {len(labels.unique())} clusters by letter"
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
