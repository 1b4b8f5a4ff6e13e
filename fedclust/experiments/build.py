"""From a trial's plain settings to the library's objects."""

import json
from dataclasses import replace
from functools import lru_cache, partial
from inspect import signature
from types import SimpleNamespace
from typing import Any

import sklearn.cluster
from torch import nn

from fedclust import algorithms, datasets, models, partition, privacy, scenario
from fedclust.algorithms.base import Method, Trainer
from fedclust.checks import has_device, require, true_or_false
from fedclust.datasets import Dataset
from fedclust.experiments import own
from fedclust.experiments.trial import whole
from fedclust.federation import Federation
from fedclust.models import Model
from fedclust.paths import short
from fedclust.training import LocalSGD

Settings = dict[str, Any]

GIVEN = ("model", "train", "shape", "classes", "data", "dataset", "seed")  # no options
_latest: dict[tuple[str, str, int], Federation] = {}  # at most one


def dataset(settings: Settings) -> Dataset:
    """The data set as asked for, e.g. scaled, or with both halves pooled."""
    return _dataset(text(settings["data"], "name"))


def federation(settings: Settings, seed: int) -> Federation:
    """The clients. With a `split_seed` the split of the data does not follow the trial's seed.

    Only the latest federation is kept: trials that share it run one after another.
    """
    split_seed = settings.get("split_seed")
    split_seed = seed if split_seed is None else split_seed
    wanted = text(settings["data"], "name"), text(settings["partition"], "kind"), split_seed
    if wanted not in _latest:
        _latest.clear()  # first, so that its memory is free
        kind, options = named(settings["partition"], partition, "partition")
        _latest[wanted] = kind(dataset(settings), seed=split_seed, **options)
    return _latest[wanted]


def network(settings: Settings, fed: Federation | SimpleNamespace) -> Model:
    kind, options = named(settings["model"], models, "model")
    device = settings.get("train", {}).get("device", "cpu")
    known = device in ("cpu", "cuda", "mps")
    require(known, f"device={short(device)}: must be 'cpu', 'cuda' or 'mps'")
    model = kind(fed.shape, fed.classes, **options)
    if isinstance(model, nn.Module):  # of a user's own
        build = partial(kind, fed.shape, fed.classes, **options)
        model = Model(build, fed.shape, fed.classes, name=settings["model"]["kind"])
    return replace(model, device=device)


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
        private = {"privacy": settings.get("train", {}).get("privacy")}  # its models leave, too
        options["pretrain"] = trainer({"train": private | options["pretrain"]}, model)
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
    for one, other in (("start", "join_every"), ("drift_from", "drift_every")):
        both = (one in plan) == (other in plan)
        require(both, f"events={plan}: {one} and {other} must be given together, or neither")
    if "start" in plan:
        start, every = plan["start"], plan["join_every"]
        fed, events = scenario.staggered(fed, start=start, every=every, rounds=rounds)
    if "drift_from" in plan:
        start, every = plan["drift_from"], plan["drift_every"]
        events = events + scenario.drifts(start=start, every=every, rounds=rounds)
    return fed, events


def named(settings: Settings, module: Any, what: str) -> tuple[Any, Settings]:
    """The thing called settings["kind"] in a module or in a user's own, and the other settings."""
    options = dict(settings)
    kind = options.pop("kind")
    if "." in kind:
        return own.find(kind, what), options
    catalogue = [known["name"] for known in algorithms.catalogue()]
    known = catalogue if module is algorithms else sorted(module.__all__)
    if kind not in known:
        raise ValueError(f"{what} {kind!r} is not known: {module.__name__} has {', '.join(known)}")
    fits(getattr(module, kind), options, f"{what} {kind}", partly=module is privacy)
    return getattr(module, kind), options


def fits(kind: Any, options: Settings, what: str, partly: bool = False) -> None:
    """An error that lists the options, if one of these is unknown or, unless `partly`, missing."""
    parameters = signature(kind).parameters.values()
    known = [p.name for p in parameters if p.name not in GIVEN and p.kind is not p.VAR_KEYWORD]
    has = f"it has {', '.join(known)}" if known else "it has none"
    unknown = sorted(options.keys() - {*known})
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise ValueError(f"{what} has no option {unknown[0][:60]!r}; {has}")
    needed = [p.name for p in parameters if p.name in known and p.default is p.empty]
    missing = [name for name in needed if name not in options]
    if missing and not partly:
        raise ValueError(f"{what} needs the option {missing[0]!r}; {has}")


def check(settings: Settings, here: bool = True) -> None:
    """Name the part that cannot be built, without dividing the data; `here`: on this machine."""
    clients = SimpleNamespace(shape=(1, 1, 1), classes=1)
    model: Any = None
    device = (settings.get("train") or {}).get("device", "cpu")
    missing = here and device in ("cuda", "mps") and not has_device(device)
    require(not missing, f"device={device!r}: this machine has none; use 'cpu'")
    for part in ("data", "partition", "model", "train", "method"):
        if part not in settings:
            continue
        try:
            if part == "data":
                data = dataset(settings)
                clients = SimpleNamespace(shape=data.shape, classes=len(data.classes))
            elif part == "partition":
                named(settings["partition"], partition, "partition")
            elif part == "model":
                model = network(settings, clients)
            elif part == "train":
                trainer(settings, model)
            else:
                method(settings, model)
        except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
            given = f"{part}={short(settings[part])}"
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{given}: cannot be used ({reason})") from error


def stretched(lr: float, momentum: float, full: int, steps: int) -> float:
    """The learning rate at which `steps` steps lead as far as `full` steps do at `lr`.

    Both start from rest and follow one gradient that does not change.
    """
    reach = [
        sum((1 - momentum**k) / (1 - momentum) for k in range(1, count + 1))
        for count in (full, steps)
    ]
    return lr * reach[0] / reach[1]


def text(settings: Settings, key: str) -> str:
    """The settings as a key; of a user's own part the files belong to it."""
    known = own.files(settings[key], key) if "." in settings[key] else {}
    code = "".join(path.read_text(encoding="utf-8") for path in known.values())
    return json.dumps([settings, code], sort_keys=True)


@lru_cache(maxsize=4)
def _dataset(wanted: str) -> Dataset:
    options, _ = json.loads(wanted)
    mean, std = options.pop("mean", None), options.pop("std", None)
    pooled, shrink = options.pop("pooled", False), whole("shrink", options.pop("shrink", 1), 1)
    if (
        not isinstance(first := options.pop("first", (None, None)), (list, tuple))
        or len(first) != 2
    ):
        raise ValueError(f"first={short(first)}: must be two numbers, of training and test images")
    n, n_test = first
    true_or_false(pooled=pooled)
    require((mean is None) == (std is None), "mean and std of the data: give both, or neither")
    name = options.pop("name")
    if "." in name:
        options.pop("stand_in", None)  # real data need none
        data = own.find(name, "data set")(**options)
    else:
        data = datasets.load(name, **options)
    data = replace(
        data, x=data.x[:n], y=data.y[:n], x_test=data.x_test[:n_test], y_test=data.y_test[:n_test]
    )
    data = data.shrunk(shrink) if shrink > 1 else data
    data = data.pooled() if pooled else data
    return data if mean is None or std is None else data.scaled(mean, std)
