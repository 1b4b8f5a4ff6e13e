"""Scores: models on the clients' data, clusterings against the truth, and readings of the record."""

from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedclust.federation import Federation
from fedclust.memo import Memo, content
from fedclust.models import CHUNK, Model

RECENT = Memo(4)  # a round's scores, for a method that looks at them itself and for the next method that has them


Scores = tuple[Tensor, Tensor]  # accuracy (N,), mean loss (N,)


def evaluate(model: Model, models: Tensor, labels: Tensor, fed: Federation, half: str = "test") -> Scores:
    """Accuracy (N,) and mean loss (N,) of models[labels[i]] on client i's half; nan for a client without samples.

    Each model is run once over all its clients' images.
    """
    key = (model, content(models), content(labels), half, fed)  # holding `fed` keeps its identity from being used again
    return RECENT(key, lambda: score(model, models, labels, fed, half))


@torch.no_grad()
def score(model: Model, models: Tensor, labels: Tensor, fed: Federation, half: str) -> Scores:
    x, y, mask = fed.half(half)
    right, loss = torch.zeros(len(fed)), torch.zeros(len(fed))
    for k in labels.unique().tolist():
        members = (labels == k).nonzero()[:, 0]
        few = members.split(max(1, CHUNK // y.shape[1]))  # at a time: they stay in the cache
        logits = torch.cat([model.logits(models[k], rows(x, some).flatten(0, 1)) for some in few])  # (n * M, classes)
        targets, flat, real = y[members], y[members].flatten(), mask[members].to(logits.dtype)
        right[members] = ((logits.argmax(1) == flat).view_as(targets) * real).sum(1).float()
        loss[members] = (cross_entropy(logits, flat, reduction="none").view_as(targets) * real).sum(1).float()
    count = mask.sum(1).float()
    count[count == 0] = torch.nan
    return right / count, loss / count


def rows(x: Tensor, which: Tensor) -> Tensor:
    """x[which] for ascending positions; where these follow one another nothing is copied."""
    first, last = int(which[0]), int(which[-1])
    return x[first : last + 1] if last - first + 1 == len(which) else x[which]


def purity(labels: Tensor | np.ndarray, group: Tensor | np.ndarray) -> float:
    """Share of clients that belong to their cluster's largest true group (joint, Sec. III-A).

    >>> purity(np.array([0, 0, 0, 1]), np.array([5, 5, 6, 6]))
    0.75
    """
    return float(cross_table(labels, group).max(1).sum() / len(labels))


def ari(table: np.ndarray) -> float:
    """Adjusted Rand index of a cross table (Hubert and Arabie 1985): as scikit-learn's, in a tenth of the time."""
    together, mine, true, all_ = ((n * (n - 1)).sum() / 2 for n in (table, table.sum(1), table.sum(0), table.sum()))
    if together == mine == true:
        return 1.0
    return float((together - mine * true / all_) / ((mine + true) / 2 - mine * true / all_))


def nmi(table: np.ndarray) -> float:
    """Mutual information over the mean of both entropies, likewise."""
    if table.shape == (1, 1):
        return 1.0
    both, mine, true = (n[n > 0] / table.sum() for n in (table, table.sum(1), table.sum(0)))
    joint, *alone = (float(-(p * np.log(p)).sum()) for p in (both, mine, true))
    shared = sum(alone) - joint
    return 2 * shared / sum(alone) if shared > np.finfo(float).eps else 0.0


def cross_table(labels: Tensor | np.ndarray, group: Tensor | np.ndarray) -> np.ndarray:
    """How many clients of each group are in each cluster, (K, G)."""
    (clusters, mine), (groups, true) = (np.unique(np.asarray(which), return_inverse=True) for which in (labels, group))
    table = np.zeros((len(clusters), len(groups)))
    np.add.at(table, (mine, true), 1)
    return table


def clustering(labels: Tensor, group: Tensor) -> dict[str, float]:
    """The clustering against the truth: number of clusters, purity, ARI, NMI."""
    return dict(compared(tuple(labels.tolist()), tuple(group.tolist())))


@lru_cache(maxsize=64)
def compared(labels: tuple[int, ...], group: tuple[int, ...]) -> dict[str, float]:
    """Most rounds leave a clustering as it was, or go back to one that was there."""
    mine, true = np.array(labels), np.array(group)
    table = cross_table(mine, true)
    return {"clusters": float(len(table)), "purity": purity(mine, true), "ari": ari(table), "nmi": nmi(table)}


def over_clients(record: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Mean and standard deviation over clients: one row per algorithm, seed and round.

    The deviation is the population's (the clients are all there are).
    """
    rows = record[(record.metric == metric) & (record.client >= 0)]
    by = rows.groupby(["algorithm", "seed", "round"], observed=True).value
    return pd.DataFrame({"mean": by.mean(), "std": by.std(ddof=0)}).reset_index()


def final_and_average(record: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Mean and deviation over clients, in the last round and averaged over training (as DCFL's tables have them).

    A row per seed, columns (algorithm, "final mean" | "final std" | "average mean" | "average std").
    """
    over = over_clients(record, metric)
    last = over[over["round"] == over["round"].max()].set_index(["seed", "algorithm"])[["mean", "std"]]
    average = over.groupby(["seed", "algorithm"], observed=True)[["mean", "std"]].mean()
    return last.add_prefix("final ").join(average.add_prefix("average ")).unstack("algorithm").swaplevel(axis=1)


def rounds_to(record: pd.DataFrame, metric: str, threshold: float) -> pd.DataFrame:
    """First round at which a metric's mean reaches the threshold, per algorithm and seed.

    Where it never does, the last round stands with ``censored=True``: a lower bound, not a result.

    >>> curve = pd.DataFrame({"algorithm": "A", "seed": 0, "round": [0, 1, 2], "metric": "accuracy",
    ...                       "value": [0.2, 0.6, 0.5]})
    >>> rounds_to(curve, "accuracy", 0.5)["round"].item(), rounds_to(curve, "accuracy", 0.9).censored.item()
    (1, True)
    """
    rows = record[record.metric == metric]
    curve = rows.groupby(["algorithm", "seed", "round"], observed=True).value.mean().reset_index()
    found = []
    for (algorithm, seed), run in curve.groupby(["algorithm", "seed"], observed=True):
        hit = run[run.value >= threshold]["round"]
        found.append((algorithm, seed, int(hit.min() if len(hit) else run["round"].max()), not len(hit)))
    return pd.DataFrame(found, columns=["algorithm", "seed", "round", "censored"])


def rounds_saved(record: pd.DataFrame, metric: str, threshold: float, baseline: str) -> pd.DataFrame:
    """Share of the baseline's rounds to a threshold that each algorithm saves, seed by seed.

    A censored run enters as what it proves: the baseline's makes the saving a lower bound, another's an upper one.
    Where neither arrives nothing is known (nan).
    """
    needed = rounds_to(record, metric, threshold).pivot(index="seed", columns="algorithm")
    count, censored = needed["round"] + 1, needed["censored"].astype(bool)
    share = 1 - count.div(count[baseline], axis=0)
    return share.mask(censored.mul(censored[baseline], axis=0)).drop(columns=baseline)


def arrivals(record: pd.DataFrame, metric: str, threshold: float) -> pd.DataFrame:
    """Per algorithm: how many seeds of how many reach the threshold, after how many rounds (median; never = inf)."""
    needed = rounds_to(record, metric, threshold)
    needed["count"] = (needed["round"] + 1.0).mask(needed.censored, np.inf)
    by = needed.groupby("algorithm", observed=True)
    return pd.DataFrame({"reached": (~needed.censored).groupby(needed.algorithm, observed=True).sum(),
                         "seeds": by.size(), "rounds": by["count"].median()})  # fmt: skip


def regrouped(record: pd.DataFrame) -> pd.DataFrame:
    """Per algorithm, seed and round: 1 where the clients that were there before are divided in another way, else 0."""
    rows = record[record.client >= 0].drop_duplicates(["algorithm", "seed", "round", "client"])
    found = []
    for (algorithm, seed), run in rows.groupby(["algorithm", "seed"], observed=True):
        labels = run.pivot(index="client", columns="round", values="cluster")
        for before, now in zip(labels.columns[:-1], labels.columns[1:], strict=True):
            both = labels[[before, now]].dropna()
            same = ari(cross_table(*both.to_numpy().T)) == 1
            found.append((algorithm, seed, now, float(not same)))
    return pd.DataFrame(found, columns=["algorithm", "seed", "round", "regrouped"])


def smoothed(frame: pd.DataFrame, s: float, scale: float = 1000.0) -> pd.DataFrame:
    """Time-weighted exponential moving average along the columns (rounds), without the bias to the start.

    From column to column old values lose weight by w = min(sqrt(s), 0.999) to the power of the step as a share of the
    whole axis times `scale`, the width of the picture. As CAFA's fig. 6 and public dashboards have it.
    """
    x, w = frame.columns.to_numpy(dtype=float), min(s**0.5, 0.999)
    total, weight, found = pd.Series(0.0, frame.index), 0.0, []
    for column, step in zip(frame, np.diff(x, prepend=x[0]) / max(float(np.ptp(x)), 1e-9) * scale, strict=True):
        keep = w**step
        total, weight = total * keep + frame[column], weight * keep + 1
        found.append(total / weight)
    return pd.concat(found, axis=1, keys=frame.columns)
