"""The bench's own measurement: one method in one scenario, in a record of a few rows."""

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch

from fedclust import scenario
from fedclust.experiments import build
from fedclust.experiments.build import Settings
from fedclust.experiments.progress import Tell, quiet
from fedclust.federation import Federation
from fedclust.metrics import clustering
from fedclust.record import Record
from fedclust.rng import stream
from fedclust.simulation import run

__all__ = ["bench"]


@dataclass(frozen=True)
class Move:
    """From round `at` on one random client of `rotated_groups` is in the next group, which is
    turned by 90 degrees more.
    """

    at: int

    def __call__(self, fed: Federation, seed: int) -> Federation:
        i = int(torch.randint(len(fed), (), generator=stream(seed, "move", self.at)))
        new: dict[str, Any] = {"group": fed.group.clone()}
        new["group"][i] = (fed.group[i] + 1) % (int(fed.group.max()) + 1)
        for name in ("x", "x_val", "x_test"):
            if (images := getattr(fed, name)) is not None:
                new[name] = images.clone()
                new[name][i] = images[i].rot90(1, (-2, -1))
        return replace(fed, **new)


def bench(
    settings: Settings, seed: int, progress: Tell = quiet, checkpoint: str | None = None
) -> pd.DataFrame:
    """What the comparison needs of one run.

    Each client's last `accuracy`, the clients' `mean` after each scored round, and at the end
    `ari`, `clusters` and all `bytes`. A method that takes one step in a round has `pace` rounds for
    one of the others. With `changes` a client joins, and another one moves, every so many rounds.
    With `honest` only clients of group 0 are scored. A run that diverges ends with no right answer.
    """
    fed, model, method = build.everything(settings, seed)
    pace, every = settings.get("pace", 1), settings.get("changes")
    rounds, events = settings["rounds"] * pace, list[Any]()
    if every:
        times = range(every * pace, rounds, every * pace)
        fed = fed.take(torch.randperm(len(fed), generator=stream(seed, "arrivals")))
        fed, joins = scenario.staggered(fed, len(fed) - len(times), every * pace, rounds)
        events = [*joins, *map(Move, times)]
    try:
        record = run(
            method,
            fed,
            model,
            rounds=rounds,
            seed=seed,
            events=events,
            eval_every=settings["eval_every"] * pace,
            checkpoint=checkpoint,
            progress=progress,
        )
    except FloatingPointError as error:
        if not hasattr(error, "record"):  # before the first round
            raise
        record = diverged(error.record, fed, rounds - 1)
    return brief(record.assign(round=record["round"] // pace), bool(settings.get("honest")))


def diverged(record: pd.DataFrame, fed: Federation, end: int) -> pd.DataFrame:
    """The rounds until then, and scores of 0 in the last one: the models answer nothing right."""
    one = torch.zeros(len(fed), dtype=torch.long)
    last = Record(dict(record.attrs))  # type: ignore[arg-type]
    last.note(end, {"accuracy": one.float(), **clustering(one, fed.group)}, fed, one)
    return pd.concat([record, last.frame()] if len(record) else [last.frame()])


def brief(record: pd.DataFrame, honest: bool) -> pd.DataFrame:
    """The few rows of `bench`."""
    scores = record[(record.metric == "accuracy") & ~(honest & (record.group > 0))]
    end = record["round"].max()
    means = scores.groupby("round", as_index=False).value.mean()
    ends = record[record.metric.isin(["ari", "clusters"])].drop_duplicates("metric", keep="last")
    sent = record[record.metric == "bytes"].value.sum()
    whole = {"client": -1, "group": -1, "cluster": -1, "seed": record.seed.iloc[0]}
    rows = [
        scores[scores["round"] == end].drop_duplicates("client", keep="last"),
        means.assign(metric="mean", **whole),
        ends,
        pd.DataFrame([{"round": end, "metric": "bytes", "value": sent, **whole}]),
    ]
    found = pd.concat(rows, ignore_index=True)
    found["algorithm"] = record.algorithm.iloc[0]
    return found[record.columns]
