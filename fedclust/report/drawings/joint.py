"""Joint's own figures: one iteration with its numbers, and the race to a goal."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from torch import nn

from fedclust.algorithms.ifca import first_batches
from fedclust.algorithms.joint import Joint
from fedclust.federation import Federation
from fedclust.models import Model, prototype
from fedclust.report import plots, readings
from fedclust.report.papers import Paper
from fedclust.report.readings import by_round, rounds_saved
from fedclust.report.tables import spread


def choices(joint: Joint, fed: Federation, seed: int, t: int) -> Figure:
    """Round t of `Joint`: each device's scores, its choice framed, and how each model moves.

    Letters are the true clusters.
    """
    after = joint.init(joint.train.model.init(seed), fed, seed)
    for past in range(t + 1):
        before, (after, _) = after, joint.step(after, fed, seed, past)
    w, dw = before.models, before.models - before.memory["previous"]  # (K, P) each
    x, y, mask = first_batches(joint.train, fed, seed, t)
    seen = joint.look(w, dw, (x, y, mask))  # (N, K) each
    count = mask.sum(1, keepdim=True)
    panes = {
        "1  loss L": seen.loss,
        "2  similarity S": replace(joint, lam=1.0).score(seen, dw, count),
        f"3  {joint.lam:g} S $-$ {1 - joint.lam:g} L": joint.score(seen, dw, count),
    }
    fig, axes = plots.panels(1, 4, height=2.6)
    devices = [f"{i + 1} ({chr(65 + g)})" for i, g in enumerate(fed.group.tolist())]
    clusters = range(1, len(w) + 1)
    for ax, (title, values) in zip(axes, panes.items(), strict=False):
        low, high = float(values.min()), float(values.max())
        pale: Any = {"vmin": low, "vmax": high + (high - low)}
        plots.heat(ax, values, devices, clusters, xlabel="model k", form="{:.2f}", **pale)
        for i, k in enumerate(after.labels.tolist()):
            ax.add_patch(plots.frame(k, i))
        ax.set_title(title)
    axes[0].set_ylabel("device (true cluster)")
    moved = (after.models - w).norm(dim=1)
    axes[3].bar(clusters, moved, color=plots.PALETTE[1], width=0.6)
    for k, length in enumerate(moved.tolist()):
        members = ",".join(str(i + 1) for i in (after.labels == k).nonzero()[:, 0].tolist())
        axes[3].text(k + 1, length, members or "none", ha="center", va="bottom", fontsize=7.5)
    axes[3].set(xlabel="model k", ylabel="length of its step", xticks=clusters)
    axes[3].set_title("4  models move")
    return fig


def race(
    record: pd.DataFrame,
    metric: str,
    baseline: str,
    names: list[str],
    *,
    goal: float | None,
    named: str,
    printed: str = "",
) -> Figure:
    """Algorithms' means over seeds; the baseline and the `named` one are bold, with their seeds.

    With a goal, the title has the share of the baseline's rounds that is saved, and the paper's:
    by the named algorithm, or by the best one where the paper says "up to".
    """
    bold = (baseline, named)
    looks: dict[str, Any] = {}
    frames = {}
    for k, name in enumerate(names):
        rows = record[record.algorithm == name]
        if len(rows):
            frames[greek(name)] = by_round(rows, metric)
            looks[greek(name)] = {"k": k, "lw": 1.8, "seeds": record.seed.nunique() <= plots.FEW}
        if len(rows) and name not in bold:
            frames[greek(name)] = frames[greek(name)].mean().to_frame().T
            looks[greek(name)] |= {"lw": 1.0}
    title = f"{record.seed.nunique()} seeds"
    if goal is not None:
        gain = rounds_saved(record, metric, goal, baseline).mean()
        label = str(gain.fillna(-np.inf).idxmax()) if "up to" in printed else named
        if gain.notna()[label]:
            title += (
                f"; {greek(label)} saves {100 * gain[label]:.0f} % of the iterations to {goal:g}"
            )
        else:
            title += f"; too few runs reach {goal:g}"
        title += f", the paper {printed}" if printed else ""
    y = metric.replace("train_", "training ")
    fig = plots.curves(
        {title: frames}, y, x="iteration", looks=looks, goal=goal, width=4.8, height=2.6
    )
    fig.axes[0].set_title(title, fontsize=8)
    return fig


def greek(name: str) -> str:
    return name.replace("lambda ", "λ = ")


def arrivals(record: pd.DataFrame, goals: dict[str, float], baseline: str) -> pd.DataFrame:
    """How many seeds reach each goal, after how many iterations (the median), and what is saved."""
    end = int(record["round"].max()) + 1
    columns = {}
    for metric, goal in goals.items():
        there = readings.arrivals(record, metric, goal)
        saved = rounds_saved(record, metric, goal, baseline)
        cells = {}
        for name, row in there.iterrows():
            after = f"{row.rounds:g}" if np.isfinite(row.rounds) else f"> {end}"
            cells[name] = f"{row.reached:g} of {row.seeds:g} seeds, {after}"
            if name in saved and saved[name].notna().any():
                cells[name] += f", saves {spread(100 * saved[name])} %"
        columns[f"{metric} {goal:g}"] = pd.Series(cells)
    return pd.DataFrame(columns)


def held_by_group(fed: Federation) -> np.ndarray:
    """Samples of each class in each of the true clusters, (K, classes)."""
    counts = fed.class_counts("train")
    return np.stack([counts[fed.group == k].sum(0).numpy() for k in fed.group.unique()])


def least_common(held: np.ndarray) -> int:
    """The fewest classes that two true clusters have in common."""
    pairs = [(a, b) for i, a in enumerate(held) for b in held[:i]]
    return min(int(((a > 0) & (b > 0)).sum()) for a, b in pairs)


def layers(paper: Paper, name: str, nets: dict[tuple[str, str], Model]) -> pd.DataFrame:
    """Models by (kind, column), layer by layer; in brackets what the paper's table prints."""
    printed, cells = paper.printed(name), {}
    for (kind, column), model in nets.items():
        sides = model.shape[model.shape[0] == 1 :]  # a grey image has no third
        cells[f"{kind} input", column] = " x ".join(map(str, sides))
        for row, text, count in architecture(model):
            cells[f"{kind} {row}", column] = f"{text}: {count:,}" if count else text
        cells[f"{kind} parameters", column] = f"{model.parameters:,}"
    rows: list[str] = []
    for kind in dict.fromkeys(kind for kind, _ in nets):
        rows += dict.fromkeys(row for row, _ in printed if row.startswith(kind))
        rows.append(f"{kind} parameters")
    columns = paper.tables[name]["columns"]
    found = [
        [f"{cells.get((r, c), '/')} [{printed.get((r, c), 'not printed')}]" for c in columns]
        for r in rows
    ]
    return pd.DataFrame(found, rows, columns).rename_axis("").reset_index()


def architecture(model: Model) -> list[tuple[str, str, int]]:
    """A model as tables print it: name, size and number of parameters, layer by layer."""
    found: list[tuple[str, str, int]] = []
    convs = hidden = 0
    net = [layer for layer in prototype(model.build).modules() if not list(layer.children())]
    for layer in net:
        if isinstance(layer, nn.Conv2d):
            convs += 1
            side = " x ".join(map(str, layer.kernel_size))
            row = f"conv {convs}", f"{layer.in_channels} -> {layer.out_channels}, {side}"
        elif isinstance(layer, nn.MaxPool2d):
            row = f"max pooling {convs}", f"{layer.kernel_size} x {layer.kernel_size}"
        elif isinstance(layer, nn.Linear):
            hidden += 1
            name = "output" if layer is net[-1] else f"hidden {hidden}"
            row = name, str(layer.out_features)
        else:
            continue
        found.append((*row, sum(w.numel() for w in layer.parameters())))
    return found
