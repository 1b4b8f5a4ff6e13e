"""From a trial's plain settings to the library's objects."""

import json
from dataclasses import replace
from functools import lru_cache
from inspect import signature
from typing import Any

import sklearn.cluster

from fedclust import algorithms, datasets, models, partition, privacy, scenario
from fedclust.algorithms.base import Method, Trainer
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.models import Model
from fedclust.training import LocalSGD

Settings = dict[str, Any]

GIVEN = ("model", "train", "shape", "classes", "data", "dataset", "seed")  # no options
_latest: dict[tuple[str, str, int], Federation] = {}  # at most one


def dataset(settings: Settings) -> Dataset:
    """The data set as asked for, e.g. scaled, or with both halves pooled."""
    return _dataset(text(settings["data"]))


def federation(settings: Settings, seed: int) -> Federation:
    """The clients. With a `split_seed` the split of the data does not follow the trial's seed.

    Only the latest federation is kept: trials that share it run one after another.
    """
    split_seed = settings.get("split_seed")
    split_seed = seed if split_seed is None else split_seed
    wanted = text(settings["data"]), text(settings["partition"]), split_seed
    if wanted not in _latest:
        _latest.clear()  # first, so that its memory is free
        kind, options = named(settings["partition"], partition, "partition")
        _latest[wanted] = kind(dataset(settings), seed=split_seed, **options)
    return _latest[wanted]


def network(settings: Settings, fed: Federation) -> Model:
    kind, options = named(settings["model"], models, "model")
    device = settings.get("train", {}).get("device", "cpu")
    return replace(kind(fed.shape, fed.classes, **options), device=device)


def trainer(settings: Settings, model: Model) -> Trainer:
    """LocalSGD, with the privacy that the settings ask for."""
    options = dict(settings["train"])
    private = options.pop("privacy", None)
    fits(LocalSGD, options, "train")
    if not private:
        return LocalSGD(model, **options)
    kind, guarantee = named(private, privacy, "privacy")
    if kind is privacy.DPSGD:
        return kind(model, **options, **guarantee)
    return kind(LocalSGD(model, **options), **guarantee)


def method(settings: Settings, model: Model) -> Method:
    kind, options = named(settings["method"], algorithms, "method")
    if "estimator" in options:
        options["estimator"] = estimator(options["estimator"])
    if "pretrain" in options:
        options["pretrain"] = LocalSGD(model, **options["pretrain"])
    return kind(trainer(settings, model), **options)


def estimator(settings: Settings) -> Any:
    """One of scikit-learn's clusterings."""
    kind, options = named(settings, sklearn.cluster, "estimator")
    return kind(**options)


def everything(settings: Settings, seed: int) -> tuple[Federation, Model, Any]:
    """The clients, the model and the method of a trial."""
    fed = federation(settings, seed)
    model = network(settings, fed)
    return fed, model, method(settings, model)


def with_events(fed: Federation, settings: Settings) -> tuple[Federation, list[Any]]:
    """Newcomers (`start`, `join_every`) and drifts (`drift_from`, `drift_every`)."""
    plan, rounds = settings.get("events") or {}, settings["rounds"]
    events: list[Any] = []
    if "start" in plan:
        start, every = plan["start"], plan["join_every"]
        fed, events = scenario.staggered(fed, start=start, every=every, rounds=rounds)
    if "drift_from" in plan:
        start, every = plan["drift_from"], plan["drift_every"]
        events = events + scenario.drifts(start=start, every=every, rounds=rounds)
    return fed, events


def named(settings: Settings, module: Any, what: str) -> tuple[Any, Settings]:
    """The thing called settings["kind"] in a module, and the rest of the settings."""
    options = dict(settings)
    kind = options.pop("kind")
    catalogue = [known["name"] for known in algorithms.catalogue()]
    known = catalogue if module is algorithms else sorted(module.__all__)
    if kind not in known:
        raise ValueError(f"{what} {kind!r} is not known: {module.__name__} has {', '.join(known)}")
    fits(getattr(module, kind), options, f"{what} {kind}")
    return getattr(module, kind), options


def fits(kind: Any, options: Settings, what: str) -> None:
    """An error that lists the options, if one of these is unknown."""
    parameters = signature(kind).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = [name for name in parameters if name not in GIVEN]
    if unknown := sorted(options.keys() - {*known}):
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ValueError(f"{what} has no option {unknown[0][:60]!r}; {has}")


def stretched(lr: float, momentum: float, full: int, steps: int) -> float:
    """The learning rate at which `steps` steps lead as far as `full` steps do at `lr`.

    Both start from rest and follow one gradient that does not change.
    """
    reach = [
        sum((1 - momentum**k) / (1 - momentum) for k in range(1, count + 1))
        for count in (full, steps)
    ]
    return lr * reach[0] / reach[1]


def text(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)


@lru_cache(maxsize=4)
def _dataset(wanted: str) -> Dataset:
    options = json.loads(wanted)
    mean, std = options.pop("mean", None), options.pop("std", None)
    pooled, shrink = options.pop("pooled", False), options.pop("shrink", 1)
    n, n_test = options.pop("first", (None, None))
    data = datasets.load(**options)
    data = replace(
        data, x=data.x[:n], y=data.y[:n], x_test=data.x_test[:n_test], y_test=data.y_test[:n_test]
    )
    data = data.shrunk(shrink) if shrink > 1 else data
    data = data.pooled() if pooled else data
    return data if mean is None else data.scaled(tuple(mean), tuple(std))
