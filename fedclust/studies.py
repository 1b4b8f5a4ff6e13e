"""What a trial can be: functions from plain settings to a record.

`train` is a federated run; the others are the papers' smaller measurements. All take ``(settings, seed, checkpoint,
progress)`` and return the tidy record's columns, so that `experiments.sweep` can cache, resume and spread any of them.
"""

import json
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any

import pandas as pd
import sklearn.cluster
import torch

from fedclust import algorithms, datasets, geometry, models, partition, privacy, scenario
from fedclust.algorithms.base import Method, Trainer
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.memo import Memo
from fedclust.models import Model
from fedclust.simulation import finish, play
from fedclust.training import LocalSGD

Settings = dict[str, Any]
Progress = Callable[[int, int], None] | None


def train(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """One method on one federation, round by round."""
    return finish(training(settings, seed, checkpoint, progress))


def training(
    settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None, memo: Memo | None = None
) -> Generator[int, None, pd.DataFrame]:
    """`train` as a generator, so that trials on one federation can go in step and share what they have in common."""
    fed, events = with_events(federation(settings, seed), settings)
    model = network(settings, fed)
    return play(
        method(settings, model),
        fed,
        model,
        rounds=settings["rounds"],
        seed=seed,
        events=events,
        eval_every=settings.get("eval_every", 1),
        checkpoint=checkpoint,
        progress=progress,
        memo=memo,
    )


# --- from plain settings to the library's objects -------------------------------------------------------------------


def dataset(settings: Settings) -> Dataset:
    """The data set as asked for: scaled, and with both halves pooled where the paper splits them anew."""
    return _dataset(json.dumps(settings["data"], sort_keys=True))


def federation(settings: Settings, seed: int) -> Federation:
    """The clients. The split has a seed of its own where `split_seed` is given: so split and training vary apart."""
    split = settings.get("split_seed")
    return _federation(
        json.dumps(settings["data"], sort_keys=True),
        json.dumps(settings["partition"], sort_keys=True),
        seed if split is None else split,
    )


def network(settings: Settings, fed: Federation) -> Model:
    kind, rest = named(settings["model"], models, "model")
    return kind(fed.shape, fed.classes, **rest)


def trainer(settings: Settings, model: Model) -> Trainer:
    """LocalSGD, with the privacy the settings ask for."""
    plain = dict(settings["train"])
    guard = plain.pop("privacy", None)
    if not guard:
        return LocalSGD(model, **plain)
    kind, rest = named(guard, privacy, "privacy")
    return kind(model, **plain, **rest) if kind is privacy.DPSGD else kind(LocalSGD(model, **plain), **rest)


def method(settings: Settings, model: Model) -> Method:
    kind, rest = named(settings["method"], algorithms, "method")
    if "estimator" in rest:
        made, options = named(rest["estimator"], sklearn.cluster, "estimator")
        rest["estimator"] = made(**options)
    if "pretrain" in rest:
        rest["pretrain"] = LocalSGD(model, **rest["pretrain"])
    return kind(trainer(settings, model), **rest)


def with_events(fed: Federation, settings: Settings) -> tuple[Federation, list[Any]]:
    """Newcomers and drifts, as in ``{"start": 10, "join_every": 10, "drift_from": 5, "drift_every": 10}``."""
    plan, rounds = settings.get("events") or {}, settings["rounds"]
    events: list[Any] = []
    if "start" in plan:
        fed, events = scenario.staggered(fed, start=plan["start"], every=plan["join_every"], rounds=rounds)
    if "drift_from" in plan:
        events = events + scenario.drifts(start=plan["drift_from"], every=plan["drift_every"], rounds=rounds)
    return fed, events


def named(settings: Settings, module: Any, what: str) -> tuple[Any, Settings]:
    """The thing called settings["kind"] in a module, and the rest of the settings."""
    rest = dict(settings)
    kind = rest.pop("kind")
    if not callable(getattr(module, kind, None)):
        known = sorted(n for n in getattr(module, "__all__", dir(module)) if not n.startswith("_"))
        raise ValueError(f"{what} {kind!r} is not known: {module.__name__} has {', '.join(known)}")
    return getattr(module, kind), rest


@lru_cache(maxsize=4)
def _dataset(text: str) -> Dataset:
    wanted = json.loads(text)
    mean, std, pooled = wanted.pop("mean", None), wanted.pop("std", None), wanted.pop("pooled", False)
    data = datasets.load(**wanted)
    data = data.pooled() if pooled else data
    return data if mean is None else data.scaled(tuple(mean), tuple(std))


@lru_cache(maxsize=2)  # methods compared at one seed share the split: trials of one seed run one after another
def _federation(data: str, split: str, seed: int) -> Federation:
    kind, rest = named(json.loads(split), partition, "partition")
    return kind(_dataset(data), seed=seed, **rest)


def one_thread() -> None:
    """Trials are spread over processes: more threads would only fight for the same cores."""
    torch.set_num_threads(1)


# --- the papers' smaller measurements --------------------------------------------------------------------------------


def pairs(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """DCFL: how far apart clients' updates are by each distance after `rounds` rounds, and how far apart their data.

    One row per pair and distance: `angle`, between the rotations (0 to 180 degrees); `labels`, the total variation
    distance of the label mixes; `together`, whether both are in one cluster.
    """
    fed = federation(settings, seed)
    model = network(settings, fed)
    algorithm, rounds = method(settings, model), settings["rounds"]
    state = algorithm.init(model.init(seed), fed, seed)
    for t in range(rounds):
        state, _ = algorithm.step(state, fed, seed, t)
        if progress is not None:
            progress(t + 1, rounds)
    starts = state.models[state.labels]
    ends = algorithm.train(starts, fed, torch.arange(len(fed)), seed, rounds)
    assert fed.angle is not None
    turned = (fed.angle[:, None] - fed.angle).abs()
    mix = partition.class_counts(fed) / fed.sizes[:, None]
    columns = {
        "angle": torch.minimum(turned, 360 - turned),
        "labels": (mix[:, None] - mix).abs().sum(2) / 2,  # (N, 1, classes) - (N, classes) -> (N, N)
        "together": (state.labels[:, None] == state.labels).float(),
    }
    i, j = torch.triu_indices(len(fed), len(fed), 1)
    common = {"algorithm": type(algorithm).__name__, "seed": seed, "round": rounds, "client": i, "other": j}
    common |= {name: values[i, j] for name, values in columns.items()}
    kinds = {kind: geometry.distance(starts, ends, kind)[i, j] for kind in geometry.KINDS}
    return pd.concat([pd.DataFrame(common | {"metric": kind, "value": d}) for kind, d in kinds.items()])
