"""DCFL's own figures: what the divergence of two updates measures, and every client's accuracy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from fedclust import geometry
from fedclust.report import plots

Points = Sequence[Sequence[float]]
SETTINGS = {  # of fig. 5, by the case in the record
    "static": "no newcomers, no drift, no privacy",
    "noiseless": "newcomers, drift, no privacy",
    "joins": "newcomers, no drift, privacy",
    "drifts": "no newcomers, drift, privacy",
}


def client_panels(
    record: pd.DataFrame, titles: dict[str, str], table: dict[tuple[str, str], float]
) -> Figure:
    """`plots.client_curves` side by side: one panel for each algorithm that `titles` names.

    `table` has what the paper prints of them.
    """
    fig, axes = plots.panels(1, len(titles), height=2.3, sharey=True)
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        mean, deviation = table.get((name, "final mean")), table.get((name, "final std"))
        printed = None if mean is None or deviation is None else (mean, deviation)
        part = record[record["algorithm"] == name]
        plots.client_curves(ax, part, title=title, printed=printed)
        ax.label_outer()
    plots.legend(fig)
    return fig


def shapes() -> Figure:
    """DCFL, fig. 1: pairs of updates with starts A, C and ends B, D."""
    pairs: dict[str, tuple[Points, Points]] = {
        "any two updates": ([[0.0, 0.0], [3.0, 0.2]], [[0.6, 1.6], [2.0, 1.5]]),
        "running apart": ([[1.0, 0.0], [2.0, 0.0]], [[0.0, 0.0], [3.0, 0.0]]),
        "running together": ([[0.0, 0.0], [3.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]]),
        "side by side": ([[0.0, 0.0], [1.5, 0.0]], [[0.0, 1.2], [1.5, 1.2]]),
    }
    fig, axes = plots.panels(1, 4, height=1.9)
    for ax, (name, (starts, ends)) in zip(axes, pairs.items(), strict=True):
        update_pair(ax, name, starts, ends, ("AB", "CD"))
    return fig


def one_origin() -> Figure:
    """DCFL, fig. 2: two updates from one model, by their angle and the ratio of their lengths."""
    fig, axes = plots.panels(1, 3, height=2.0)
    for ax, degrees, length in zip(axes, (30, 90, 90), (1.0, 1.0, 0.4), strict=True):
        gamma = np.deg2rad(degrees)
        ends = [[0.0, 1.0], [length * np.sin(gamma), length * np.cos(gamma)]]
        root = f"$\\sqrt{{(1-\\cos\\gamma)/2}}$ = {np.sin(gamma / 2):.2f}"
        title = f"$\\gamma$ = {degrees}°, |AC|/|AB| = {length:g}\n{root}"
        update_pair(ax, title, [[0.0, 0.0]] * 2, ends, ("AB", "AC"))
    return fig


def lengths(degrees: Any, omega: dict[float, np.ndarray]) -> Figure:
    """DCFL, fig. 3: the divergence of two updates from one origin, a curve per ratio of lengths."""
    fig, ax = plots.panels(height=2.6, width=4.6)
    for k, (ratio, curve) in enumerate(omega.items()):
        ax.plot(degrees, curve, label=f"{ratio:g}", **plots.look(k) | {"marker": ""})
    below = "angle between the updates (degrees)"
    ax.set(xlabel=below, ylabel="divergence $\\omega$", xticks=range(0, 181, 30))
    ax.legend(title="shorter / longer", loc="lower right")
    return fig


def update_pair(ax: Axes, title: str, starts: Points, ends: Points, names: Sequence[str]) -> None:
    """Two updates with their angles, divergence and distance (DCFL, Eqs. 1 and 2)."""
    a, b = (torch.tensor(points, dtype=torch.float64) for points in (starts, ends))  # (2, 2) each
    gap = b[0] - b[1]
    outward = torch.stack([gap, -gap])  # at either end
    alpha, beta = torch.cosine_similarity(b - a, outward).acos().rad2deg()
    omega, distance = (measure(a, b)[0, 1] for measure in (geometry.divergence, geometry.distance))
    arrows(ax, a.numpy(), b.numpy(), names)
    angles = rf"$\alpha$ = {alpha:.0f}°, $\beta$ = {beta:.0f}°"
    values = rf"$\omega$ = {omega:.2f}, gap = {gap.norm():.2f}, d = {distance:.2f}"
    ax.set_title(f"{title}\n{angles}\n{values}", fontsize=7)


def arrows(ax: Axes, starts: np.ndarray, ends: np.ndarray, names: Sequence[str]) -> None:
    """Two updates as arrows in the plane, "AB" from A to B, and the dotted gap between their ends.

    Each arrow has its angle with the outward direction of the gap, unless that is 0 or 180 degrees.
    """
    reach = 0.25 * max(float(np.ptp(np.concatenate([starts, ends]), axis=0).max()), 1e-9)
    for k, (a, b, name) in enumerate(zip(starts, ends, names, strict=True)):
        shape = {"arrowstyle": "-|>", "color": plots.PALETTE[k + 1], "lw": 1.8}
        ax.annotate("", b, a, arrowprops=shape | {"shrinkA": 0, "shrinkB": 0})
        along, out = (unit(v) for v in (b - a, b - ends[1 - k]))
        flat = abs(float(out @ along)) > 0.99
        if k == 0 or (a != starts[0]).any():  # a common start is named once
            letter(ax, name[0], a, -along)
        letter(ax, name[1], b, unit(inward(out, along, flat)))
        if not flat:
            angle(ax, b, out, along, reach, (r"$\alpha$", r"$\beta$")[k])
    ax.plot(*ends.T, color=plots.GREY, ls=":", lw=1.2)
    ax.plot(*np.concatenate([starts, ends]).T, ls="", marker="o", ms=3, color="black")
    ax.margins(0.25)
    ax.set_aspect("equal", "datalim")
    ax.grid(False)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-9)


def inward(out: np.ndarray, along: np.ndarray, flat: bool) -> np.ndarray:
    """Where the name of an arrow's end has room: away from the gap and from the arrow."""
    if flat:
        return np.array([0.0, 1.0])
    return -(out + along) if out @ along < 0.5 else (out @ along) * along - out


def letter(ax: Axes, text: str, point: np.ndarray, direction: np.ndarray) -> None:
    how: Any = {"textcoords": "offset points", "ha": "center", "va": "center"}
    ax.annotate(text, (point[0], point[1]), tuple(10 * direction), **how)


def angle(
    ax: Axes, at: np.ndarray, out: np.ndarray, along: np.ndarray, reach: float, name: str
) -> None:
    """An arc between two directions, with the rays and its name."""
    ends_at = np.rad2deg([np.arctan2(*out[::-1]), np.arctan2(*along[::-1])])
    swept = (ends_at[1] - ends_at[0] + 180) % 360 - 180
    first, last = sorted((ends_at[0], ends_at[0] + swept))
    how: Any = {"theta1": first, "theta2": last, "color": "black", "lw": 0.8}
    ax.add_patch(Arc(tuple(at), 2 * reach, 2 * reach, **how))
    for ray, style in ((out, ":"), (along, "--")):
        ax.plot(*np.array([at, at + 1.3 * reach * ray]).T, color=plots.GREY, ls=style, lw=1)
    middle = np.deg2rad((first + last) / 2)
    x, y = at + 1.5 * reach * np.array([np.cos(middle), np.sin(middle)])
    ax.text(x, y, name, ha="center", va="center")
