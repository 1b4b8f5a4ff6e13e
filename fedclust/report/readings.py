"""Readings of a record: what tables and claims make of its rows."""

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score


def over_clients(record: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Mean and standard deviation over clients: one row per algorithm, seed and round.

    The deviation is the population's (the clients are all there are).
    """
    rows = record[(record.metric == metric) & (record.client >= 0)]
    by = rows.groupby(["algorithm", "seed", "round"], observed=True).value
    return pd.DataFrame({"mean": by.mean(), "std": by.std(ddof=0)}).reset_index()


def final_and_average(record: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Mean and deviation over clients, in the last round and averaged over training (DCFL's tables).

    One row per seed; columns (algorithm, "final mean" | "final std" | "average mean" |
    "average std").
    """
    over = over_clients(record, metric)
    by = ["seed", "algorithm"]
    last = over[over["round"] == over["round"].max()].set_index(by)[["mean", "std"]]
    average = over.groupby(by, observed=True)[["mean", "std"]].mean()
    both = last.add_prefix("final ").join(average.add_prefix("average "))
    return both.unstack("algorithm").swaplevel(axis=1)


def rounds_to(record: pd.DataFrame, metric: str, threshold: float) -> pd.DataFrame:
    """First round at which a metric's mean reaches the threshold, per algorithm and seed.

    Where it never does, the row has the last round and ``censored=True``: a lower bound.

    >>> curve = pd.DataFrame({"round": [0, 1, 2], "value": [0.2, 0.6, 0.5]})
    >>> curve = curve.assign(algorithm="A", seed=0, metric="accuracy")
    >>> rounds_to(curve, "accuracy", 0.5)["round"].item()
    1
    >>> rounds_to(curve, "accuracy", 0.9).censored.item()
    True
    """
    rows = record[record.metric == metric]
    curve = rows.groupby(["algorithm", "seed", "round"], observed=True).value.mean().reset_index()
    found = []
    for (algorithm, seed), run in curve.groupby(["algorithm", "seed"], observed=True):
        hit = run[run.value >= threshold]["round"]
        first = int(hit.min() if len(hit) else run["round"].max())
        found.append((algorithm, seed, first, not len(hit)))
    return pd.DataFrame(found, columns=["algorithm", "seed", "round", "censored"])


def rounds_saved(
    record: pd.DataFrame, metric: str, threshold: float, baseline: str
) -> pd.DataFrame:
    """Share of the baseline's rounds to a threshold that each algorithm saves, seed by seed.

    A censored run of the baseline makes the saving a lower bound, one of another algorithm an upper
    bound. Where both are censored nothing is known (nan).
    """
    needed = rounds_to(record, metric, threshold).pivot(index="seed", columns="algorithm")
    count, censored = needed["round"] + 1, needed["censored"].astype(bool)
    share = 1 - count.div(count[baseline], axis=0)
    return share.mask(censored.mul(censored[baseline], axis=0)).drop(columns=baseline)


def arrivals(record: pd.DataFrame, metric: str, threshold: float) -> pd.DataFrame:
    """Per algorithm: how many of its seeds reach the threshold, and the median number of rounds.

    A seed that never reaches it counts as infinitely many rounds.
    """
    needed = rounds_to(record, metric, threshold)
    needed["count"] = (needed["round"] + 1.0).mask(needed.censored, np.inf)
    by = needed.groupby("algorithm", observed=True)
    reached = (~needed.censored).groupby(needed.algorithm, observed=True).sum()
    return pd.DataFrame({"reached": reached, "seeds": by.size(), "rounds": by["count"].median()})


def regrouped(record: pd.DataFrame) -> pd.DataFrame:
    """Per algorithm, seed and round: 1 where the clusters have changed, else 0.

    Only clients that were there in the round before count, and clusters may have other numbers.
    """
    rows = record[record.client >= 0].drop_duplicates(["algorithm", "seed", "round", "client"])
    found = []
    for (algorithm, seed), run in rows.groupby(["algorithm", "seed"], observed=True):
        labels = run.pivot(index="client", columns="round", values="cluster")
        for before, now in zip(labels.columns[:-1], labels.columns[1:], strict=True):
            both = labels[[before, now]].dropna()
            same = adjusted_rand_score(both[before], both[now]) == 1
            found.append((algorithm, seed, now, float(not same)))
    return pd.DataFrame(found, columns=["algorithm", "seed", "round", "regrouped"])


def smoothed(frame: pd.DataFrame, s: float, scale: float = 1000.0) -> pd.DataFrame:
    """Time-weighted exponential moving average along the columns (rounds), without bias to the start.

    From column to column old values lose weight by w = min(sqrt(s), 0.999) to the power of the step
    as a share of the whole axis times `scale`, the width of the picture. CAFA's fig. 6 and public
    dashboards smooth in this way.
    """
    x, w = frame.columns.to_numpy(dtype=float), min(s**0.5, 0.999)
    steps = np.diff(x, prepend=x[0]) / max(float(np.ptp(x)), 1e-9) * scale
    total, weight, found = pd.Series(0.0, frame.index), 0.0, []
    for column, step in zip(frame, steps, strict=True):
        decay = w**step
        total = total * decay + frame[column]
        weight = weight * decay + 1
        found.append(total / weight)
    return pd.concat(found, axis=1, keys=frame.columns)
