"""All methods on one bench: its trials, the choice of open values, scores and what they say.

Scores have one row per data set, scenario, method and seed. A `Cube` has them as an array; its
intervals are percentiles of a bootstrap that draws seeds anew in every scenario, as rliable does
(Agarwal et al., NeurIPS 2021).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata, studentized_range

from fedclust.experiments.trial import Trial, alter
from fedclust.paths import figures, root, write
from fedclust.report.papers import Paper, PaperError
from fedclust.rng import numpy_stream

KEYS = ["data", "scenario", "method", "seed"]
TASK = ["data", "scenario"]
DECILE, ARRIVED = 0.1, 0.9  # of the clients; of Oracle's last accuracy
POINT = 0.01  # a gap between FedAvg and Oracle that is worth closing
CHOSEN = "compare-chosen.json"
Interval = tuple[float, float, float]  # estimate, low, high


# --- what is run ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """The scenarios and methods of papers/compare.toml, and how large they are at a tier."""

    paper: Paper
    base: dict[str, dict[str, Any]]  # by data set: the settings that all its trials share
    few: dict[str, dict[str, Any]]  # by data set: what the scenario with few images changes
    changes: int  # rounds between two newcomers
    pace: int  # rounds of a method that takes one step for one round of the others

    @property
    def methods(self) -> dict[str, list[Any]]:
        """By name: kind, settings, candidates, source."""
        return {name: row for name, *row in self.paper.tables["methods"]["rows"]}

    @property
    def scenarios(self) -> dict[str, dict[str, Any]]:
        return {name: settings for name, settings, _ in self.paper.tables["scenarios"]["rows"]}

    def trial(self, data: str, scenario: str, method: str, seed: int, changes: Any) -> Trial:
        """One run; a method that the table does not name is a dotted path."""
        base, known = self.base[data], self.methods.get(method)
        special = dict(self.scenarios[scenario])
        if special.pop("few", False):
            special |= self.few[data]
        if "changes" in special:
            special["changes"] = self.changes
        settings = alter(base, special | (known[1] if known else {"method.kind": method}) | changes)
        if method == "Joint":
            one_step = {k: v for k, v in settings["train"].items() if k != "steps"}
            settings |= {"train": one_step, "pace": self.pace}
        return Trial(settings, seed, method, {"data": data, "scenario": scenario}, "bench")

    def reported(
        self, names: Sequence[str], seeds: list[int], chosen: dict[str, Any]
    ) -> list[Trial]:
        """Every scenario, with the chosen values."""
        return [
            self.trial(data, scenario, name, seed, self.values(data, name, chosen))
            for data, scenario, name, seed in product(self.base, self.scenarios, names, seeds)
        ]

    def values(self, data: str, name: str, chosen: dict[str, Any]) -> dict[str, Any]:
        """A method's values, chosen on this data set, else on the first one that was tuned.

        The learning rate is FedAvg's, and FedACP has FedAC's.
        """
        here: dict[str, Any] = chosen.get(data) or next(iter(chosen.values()), {})
        return here.get("FedAvg", {}) | here.get({"FedACP": "FedAC"}.get(name, name), {})

    def candidates(self, seeds: list[int], rates: dict[str, Any] | None) -> list[Trial]:
        """Every scenario with every candidate: of FedAvg, then at its rate of the others."""
        tried = [
            (name, candidate)
            for name, (_, _, candidates, _) in self.methods.items()
            for candidate in candidates
            if (name == "FedAvg") == (rates is None)
        ]
        trials = []
        for data, scenario, (name, candidate), seed in product(
            self.base, self.scenarios, tried, seeds
        ):
            values = (self.values(data, "FedAvg", rates) if rates else {}) | candidate
            trial = self.trial(data, scenario, name, seed, values)
            trials.append(replace(trial, tags=trial.tags | {"candidate": json.dumps(values)}))
        return trials


def best(record: pd.DataFrame) -> tuple[dict[str, Any], pd.DataFrame]:
    """By data set and method: the candidate with the highest mean accuracy over all scenarios and
    seeds, the first of equals; and its accuracy in each scenario.
    """
    rows = record[record.metric == "accuracy"].astype({"algorithm": str})
    by = [*TASK, "algorithm", "candidate"]
    scores = rows.groupby([*by, "seed"], observed=True, sort=False).value.mean()
    scores = scores.groupby(by, observed=True, sort=False).mean()
    one = ["data", "algorithm"]
    means = scores.groupby([*one, "candidate"], observed=True, sort=False).mean()
    values: dict[str, Any] = {}
    for data, method, text in means.groupby(one, observed=True, sort=False).idxmax():
        values.setdefault(data, {})[method] = json.loads(text)
    held_out = scores.reset_index()
    every = held_out[[*one, "candidate"]].astype(str).itertuples(index=False)
    chosen = [json.loads(text) == values[data][method] for data, method, text in every]
    kept = held_out[chosen].drop(columns="candidate")
    return values, kept.rename(columns={"algorithm": "method"})


def at_end(candidates: list[dict[str, Any]], values: dict[str, Any]) -> str:
    """Which of the chosen numbers are the smallest or the largest that was tried.

    >>> at_end([{"k": 4}, {"k": 2}, {"k": 8}], {"k": 8, "lr": 0.1})
    'k'
    """
    ends = []
    for name in dict.fromkeys(name for candidate in candidates for name in candidate):
        tried = [candidate[name] for candidate in candidates if name in candidate]
        if len({*tried}) > 2 and values.get(name) in (min(tried), max(tried)):
            ends.append(name)
    return ", ".join(ends)


def keep_choice(tier: str, values: dict[str, Any], held_out: pd.DataFrame) -> None:
    """Write what was chosen next to papers/compare.toml."""
    rounded = held_out.assign(value=held_out["value"].round(4))
    entry = {"values": values, "held_out": rounded.to_dict("records")}
    path = root() / "papers" / CHOSEN
    everything = (json.loads(path.read_text()) if path.exists() else {}) | {tier: entry}
    text = json.dumps(everything, indent=1, sort_keys=True) + "\n"
    write(path, lambda aside: aside.write_text(text))


def choice(tier: str) -> tuple[str, dict[str, Any], pd.DataFrame]:
    """At which tier values were chosen, which, and their held-out accuracies: this tier's, else
    quick's.
    """
    path = root() / "papers" / CHOSEN
    everything = json.loads(path.read_text()) if path.exists() else {}
    found = tier if tier in everything else "quick"
    if found not in everything:
        raise PaperError(f"papers/{CHOSEN} has no choice: make compare ARGS='-p tune True'")
    entry = everything[found]
    return found, entry["values"], pd.DataFrame(entry["held_out"])


# --- scores ---------------------------------------------------------------------------------------


def scores(record: pd.DataFrame, known: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per run: `accuracy` and that of the `worst` decile of the clients, `ari`, `clusters`,
    `bytes`, and `rounds` until the mean accuracy is 0.9 of Oracle's last one (nan: never).

    `known` are the scores of other methods, Oracle's among them, if the record has not got it.
    """
    record = record.rename(columns={"algorithm": "method"}).astype({"method": str, "metric": str})
    by_metric = record.groupby("metric")
    of = {metric: rows.groupby(KEYS, sort=False).value for metric, rows in by_metric}
    clients = of["accuracy"]
    found = pd.DataFrame({"accuracy": clients.mean(), "worst": clients.quantile(DECILE)})
    found = found.assign(**{name: of[name].last() for name in ("ari", "clusters", "bytes")})
    found = found.reset_index()
    oracle = (found if known is None else known).query("method == 'Oracle'")
    goal = (ARRIVED * oracle.set_index([*TASK, "seed"]).accuracy).rename("goal")
    curves = record[record.metric == "mean"].join(goal, on=[*TASK, "seed"])
    there = curves[curves.value >= curves.goal].groupby(KEYS)["round"].min() + 1.0
    found = found.join(there.rename("rounds"), on=KEYS)
    return found if known is None else pd.concat([known, found], ignore_index=True)


def shipped(tier: str, seeds: list[int]) -> pd.DataFrame:
    """The scores of a run before this one, of some seeds."""
    path = figures() / tier / "compare" / "scores.csv"
    if not path.exists():
        raise PaperError(f"no scores are shipped at tier {tier}: make compare TIER={tier} first")
    found = pd.read_csv(path)
    return found[found.seed.isin(seeds)]


def row_of(tier: str, method: str) -> str:
    """The row that the last run with this method has made, as Markdown."""
    found = (root() / "build" / "figures").glob(f"changed-*/{tier}/compare/run.json")
    runs = {path: json.loads(path.read_text()) for path in found}
    mine = [path for path, run in runs.items() if run["changed"].get("method") == method]
    latest = max(mine, key=lambda path: path.stat().st_mtime)
    return (latest.parent / "table-extra-yours.md").read_text(encoding="utf-8")


class Cube:
    """A score of every run, (tasks, methods, seeds); a task is a scenario on a data set."""

    def __init__(self, scores: pd.DataFrame, metric: str = "accuracy", draws: int = 2000):
        wide = scores.pivot(index=[*TASK, "method"], columns="seed", values=metric)
        self.tasks = list(dict.fromkeys(zip(scores.data, scores.scenario, strict=True)))
        self.methods = list(dict.fromkeys(scores.method))
        index = [(*task, method) for task in self.tasks for method in self.methods]
        self.seeds = list(wide.columns)
        cells = wide.reindex(index).to_numpy().reshape(len(self.tasks), len(self.methods), -1)
        if np.isnan(cells).any():
            raise ValueError(f"{metric}: every method needs a run in each scenario and seed")
        self.x, self.draws = cells, draws

    def of(self, method: str) -> np.ndarray:
        return self.x[:, self.methods.index(method)]  # (tasks, seeds)

    @cached_property
    def lots(self) -> np.ndarray:
        """Which seeds are drawn: the same for all methods of a task, (draws, tasks, seeds)."""
        shape = self.draws, len(self.tasks), len(self.seeds)
        return numpy_stream(0, "bootstrap").integers(shape[2], size=shape)

    def means(self, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean over seeds (tasks,), and over drawn seeds (draws, tasks)."""
        x = self.of(method)
        drawn = np.take_along_axis(x[None].repeat(self.draws, 0), self.lots, 2)
        return x.mean(1), drawn.mean(2)

    def difference(self, a: str, b: str) -> list[Interval]:
        """Of two methods' means in each task."""
        (x, drawn), (y, other) = self.means(a), self.means(b)
        return list(spans(x - y, drawn - other))

    def closed(self, method: str) -> list[Interval | None]:
        """The share of the gap between FedAvg and Oracle; None where there is no gap."""
        (base, bases), (top, tops) = self.means("FedAvg"), self.means("Oracle")
        x, drawn = self.means(method)
        sure = [low > 0 for _, low, _ in self.difference("Oracle", "FedAvg")]
        fine = np.array(sure) & (top - base >= POINT)
        gap, gaps = np.where(fine, top - base, 1), np.where(fine, tops - bases, 1).clip(1e-9)
        shares = spans((x - base) / gap, (drawn - bases) / gaps)
        return [share if each else None for share, each in zip(shares, fine, strict=True)]

    def overall(self, method: str) -> Interval:
        """Mean over all tasks."""
        x, drawn = self.means(method)
        return next(spans(x[:1] * 0 + x.mean(), drawn.mean(1)[:, None]))

    def improvement(self, a: str, b: str) -> Interval:
        """Probability that a run of `a` is better than one of `b`, averaged over tasks.

        All pairs of runs of a task count, ties half (rliable's definition).
        """
        rng = numpy_stream(0, "improvement")
        shape = len(self.tasks), len(self.seeds)

        def probability(x: np.ndarray, y: np.ndarray) -> float:
            pairs = x[:, :, None] - y[:, None]  # (tasks, seeds, seeds)
            return float(((pairs > 0) + 0.5 * (pairs == 0)).mean())

        def drawn(x: np.ndarray) -> np.ndarray:
            return np.take_along_axis(x, rng.integers(shape[1], size=shape), 1)

        x, y = self.of(a), self.of(b)
        boot = [probability(drawn(x), drawn(y)) for _ in range(self.draws)]
        return next(spans(np.array([probability(x, y)]), np.array(boot)[:, None]))

    def ranks(self, methods: Sequence[str]) -> tuple[pd.Series, float]:
        """Mean ranks over tasks, best first, and by how much two must differ (Nemenyi's test at
        95 %, as in Demsar, JMLR 2006).
        """
        places = rankdata([-self.of(method).mean(1) for method in methods], axis=0)
        means = pd.Series(places.mean(1), list(methods)).sort_values(kind="stable")
        count = len(methods)
        critical = studentized_range.ppf(0.95, count, np.inf) / np.sqrt(2)
        return means, critical * np.sqrt(count * (count + 1) / (6 * len(self.tasks)))


def spans(estimates: np.ndarray, drawn: np.ndarray) -> Iterator[Interval]:
    """Estimates (tasks,) with the 95 % percentiles of (draws, tasks)."""
    for value, low, high in zip(estimates, *np.percentile(drawn, [2.5, 97.5], axis=0), strict=True):
        yield float(value), float(low), float(high)


# --- what follows from them -----------------------------------------------------------------------


def pays(cube: Cube, held_out: pd.DataFrame, kinds: dict[str, str]) -> pd.DataFrame:
    """Does clustering pay? In each task the best clustering method against the best of the others.

    Both are chosen by their held-out accuracy, so nothing is chosen on the seeds that are reported.
    """
    where = held_out.assign(kind=held_out["method"].map(kinds))
    ours, theirs = where["kind"].eq("clusters"), where["kind"].ne("clusters")
    rows = []
    for at, (data, scenario) in enumerate(cube.tasks):
        here = (where.data == data) & (where.scenario == scenario)
        if not here.any():  # chosen at another tier, on other data: over all of its sets
            here = where.scenario == scenario
        one, rival = (
            where[here & some].groupby("method").value.mean().idxmax() for some in (ours, theirs)
        )
        mean, low, high = cube.difference(one, rival)[at]
        verdict = "pays" if low > 0 else "costs" if high < 0 else "makes no difference"
        over = [cube.difference(one, other)[at][0] for other in ("FedAvg", "Told", "Oracle")]
        rows.append([data, scenario, verdict, one, rival, mean, low, high, *over])
    columns = ["data", "scenario", "clustering", "by", "against", "gain", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "over FedAvg", "over Told", "over Oracle"])


def above_oracle(cube: Cube) -> list[tuple[str, str]]:
    """Where a method is above Oracle, and by how much in points."""
    found = []
    for method in cube.methods:
        for (data, scenario), (mean, low, high) in zip(
            cube.tasks, cube.difference(method, "Oracle"), strict=True
        ):
            if low > 0:
                span = f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
                found.append((f"{method} in {scenario} on {data}", span))
    return found
