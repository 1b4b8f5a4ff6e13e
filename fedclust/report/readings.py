"""Readings of a record: what tables and claims make of its rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score


def by_round(record: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """The metric's mean over clients: one row per seed, one column per round."""
    rows = record[record["metric"] == metric]
    return rows.pivot_table(
        index="seed", columns="round", values="value", aggfunc="mean", observed=True
    )


def by_cluster(record: pd.DataFrame, of: str) -> tuple[pd.Series, pd.DataFrame]:
    """All algorithms' accuracy on the clients of the clusters that the algorithm `of` ends with.

    Indexed by algorithm, cluster, seed and round; clusters are numbered from 1 by `of`'s last
    accuracy, seed by seed, the best first. The second table has each client's cluster and group.
    """
    scores = record[(record.metric == "accuracy") & (record.client >= 0)]
    end = scores[(scores["round"] == scores["round"].max()) & (scores.algorithm == of)]
    last = end.groupby(["seed", "cluster"]).value.mean()
    order = last.groupby("seed").rank(ascending=False, method="first").astype(int)
    members = end.join(order.rename("place"), on=["seed", "cluster"])
    members = members.set_index(["seed", "client"])[["place", "group"]]
    members = members.rename(columns={"place": "cluster"})
    scores = scores.drop(columns=["cluster", "group"]).join(members, on=["seed", "client"])
    keys = ["algorithm", "cluster", "seed", "round"]
    return scores.groupby(keys, observed=True).value.mean(), members


def over_clients(record: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Mean and standard deviation over clients: one row per algorithm, seed and round.

    The deviation is the population's (the clients are all there are).
    """
    rows = record[(record.metric == metric) & (record.client >= 0)]
    by = rows.groupby(["algorithm", "seed", "round"], observed=True).value
    return pd.DataFrame({"mean": by.mean(), "std": by.std(ddof=0)}).reset_index()


def final_and_average(record: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Mean and deviation over clients, in the last round and averaged over training (as in DCFL).

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


def arrived(record: pd.DataFrame, metric: str, threshold: float) -> pd.DataFrame:
    """The round, counted from 1, in which each seed of each algorithm reaches it; nan for never."""
    needed = rounds_to(record, metric, threshold)
    needed["count"] = (needed["round"] + 1.0).mask(needed.censored)
    return needed.pivot(index="seed", columns="algorithm", values="count")


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


def moved(record: pd.DataFrame, since: int) -> dict[str, pd.DataFrame]:
    """How restless clusters are: per seed and algorithm, from the round `since` on.

    "changes" is the share of measurements at which clusters were others than before, "jumps" the
    mean change of a client's accuracy from one measurement to the next, over all rounds. "clusters"
    and "reclustered" are the server's means.
    """
    late, by = record[record["round"] >= since], ["seed", "algorithm"]
    anew = regrouped(late).groupby(by, observed=True).regrouped.mean().unstack()
    scores = record[record.metric == "accuracy"]
    steps = scores.groupby([*by, "client"], observed=True).value.diff()
    jumps = scores.assign(jump=steps.abs()).groupby(by, observed=True).jump.mean().unstack()
    server: Any = late[late.client == -1].groupby(["metric", *by], observed=True).value.mean()
    server = server.unstack()
    said = {name: server.loc[name] for name in ("clusters", "reclustered")}
    return {"changes": anew, "jumps": jumps, **said}


def smoothed(frame: pd.DataFrame, s: float, scale: float = 1000.0) -> pd.DataFrame:
    """Time-weighted exponential moving average along the columns (rounds), unbiased at the start.

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


# --- OCFL: clusters that are served by two methods ------------------------------------------------


def served(scores: pd.Series, clusters: int) -> pd.DataFrame:
    """What `by_cluster` says of OCFL and FedAvg at the end, a row per seed.

    "gain k" is OCFL's lead in cluster k, "gain" its mean and "least" its smallest, "FedAvg" is
    FedAvg's mean and "... gap" the distance of the best and the worst served cluster.
    """
    end: Any = scores.unstack("round").iloc[:, -1].unstack("cluster")
    gain = (end.loc["OCFL"] - end.loc["FedAvg"]).reindex(columns=range(1, clusters + 1))
    found = pd.DataFrame({"gain": gain.mean(axis=1), "least": gain.min(axis=1)})
    for k in gain:
        found[f"gain {k}"] = gain[k]
    found["FedAvg"] = end.loc["FedAvg"].mean(axis=1)
    for name in ("FedAvg", "OCFL"):
        found[f"{name} gap"] = end.loc[name].max(axis=1) - end.loc[name].min(axis=1)
    return found


def needed(record: pd.DataFrame, of: str) -> pd.DataFrame:
    """The share of the rounds until each algorithm first has the last accuracy of `of`."""
    courses = {name: by_round(run) for name, run in record.groupby("algorithm", observed=True)}
    goal = courses[of].iloc[:, -1]
    found = {}
    for name, course in courses.items():
        there = course.ge(goal, axis=0)
        first: Any = there.idxmax(axis=1)
        share = (first + 1) / (course.columns.to_numpy().max() + 1)
        found[f"{name!s} needs"] = share.where(there.any(axis=1))
    return pd.DataFrame(found)


# --- FedAC: runs whose clusters are split ---------------------------------------------------------

Conditions = dict[str, pd.DataFrame]  # "dloss" and "theta": one row per seed, one column per round


def wobble(frame: pd.DataFrame) -> pd.Series:
    """Standard deviation around the straight line through the last quarter of the rounds."""
    tail = frame.iloc[:, -max(4, frame.shape[1] // 4) :]
    trend = [np.polyval(np.polyfit(tail.columns, y, 1), tail.columns) for y in tail.to_numpy()]
    return (tail - np.stack(trend)).std(axis=1, ddof=0)


def restless(frame: pd.DataFrame, since: pd.Series, rounds: float = np.inf) -> pd.Series:
    """Mean change from round to round in so many rounds after the round `since`, per seed."""
    change = frame.diff(axis=1).abs()
    after = change.columns.to_numpy() - since.reindex(frame.index).to_numpy()[:, None]
    return change.where((after > 0) & (after <= rounds)).mean(axis=1)


def course(record: pd.DataFrame) -> pd.DataFrame:
    """How the runs of one algorithm went: one row per seed.

    A run that never splits has its number of rounds as `first split`, and -1 as `last split`.
    """
    accuracy, server = by_round(record), record[record.client == -1]
    sums = server.groupby(["seed", "metric"], observed=True).value.sum().unstack()
    split = by_round(record, "splits").reindex_like(accuracy).fillna(0) > 0
    rounds = accuracy.shape[1]
    columns = {
        "final accuracy": accuracy.iloc[:, -max(1, rounds // 10) :].mean(axis=1),
        "wobble": wobble(accuracy),
        "loss wobble": wobble(by_round(record, "loss")),
        "ARI": by_round(record, "ari").iloc[:, -1],
        "clusters": by_round(record, "clusters").iloc[:, -1],
        "first split": split.idxmax(axis=1).where(split.any(axis=1), rounds),
        "last split": split.T[::-1].idxmax().where(split.any(axis=1), -1),
        "splits": sums.get("splits", 0 * sums.up),
        "extra trainings": sums.extra,
        "messages": sums.up + sums.down,
        "MB": sums.bytes / 1e6,
    }
    return pd.DataFrame(columns)


def conditions(record: pd.DataFrame) -> Conditions:
    """What FedAC compares with its thresholds, in runs with one cluster."""
    return {what: by_round(record, what) for what in ("dloss", "theta")}


def first_split(seen: Conditions, alpha: float, beta: float) -> pd.Series:
    """Rounds until FedAC would split for the first time, per seed; infinite if it never does.

    `seen` is from runs that never split: until its first split any run with FedAC is the same.
    """
    holds = (seen["dloss"] < alpha) & (seen["theta"] < beta)
    return (holds.idxmax(axis=1) + 1.0).where(holds.any(axis=1), np.inf)


def compared(one: Conditions, other: Conditions, names: Sequence[str]) -> pd.DataFrame:
    """Both conditions of two runs by round, means over the seeds that both have."""
    rounds, seeds = one["theta"].columns, one["theta"].index
    runs = dict(zip(names, (one, other), strict=True))
    shown = {f"{w}, {n}": run[w].loc[seeds, rounds].mean() for w in one for n, run in runs.items()}
    return pd.DataFrame(shown).rename_axis("round").reset_index()


def drawn(record: pd.DataFrame) -> pd.DataFrame:
    """Both conditions of every round, and the share of the smaller of two groups in its draw."""
    trained = record[(record.metric == "trained") & (record.value == 1)]
    share = trained.groupby(["seed", "round"]).group.mean()
    shown = {what: frame.stack() for what, frame in conditions(record).items()}
    return pd.DataFrame({"smaller": np.minimum(share, 1 - share)} | shown).reset_index()


def held(seen: Conditions, alpha: float, beta: float, begin: int) -> pd.DataFrame:
    """How often each condition held in the first `begin` rounds and later; the rarer decides."""
    still, apart = (seen["dloss"] < alpha).to_numpy(), (seen["theta"] < beta).to_numpy()
    rows = []
    for name, part in ((f"first {begin}", slice(begin)), ("later", slice(begin, None))):
        a, b = still[:, part], apart[:, part]
        rarer = "loss" if a.mean() < b.mean() else "angle"
        rarer = "neither" if a.mean() == b.mean() else rarer
        rows.append([name, *(f"{100 * v.mean():.0f} %" for v in (a, b, a & b)), rarer])
    columns = ["rounds", "loss condition holds", "angle condition holds", "both", "decides"]
    return pd.DataFrame(rows, columns=columns)
