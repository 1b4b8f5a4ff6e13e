"""What a trial can be: functions from plain settings to a record.

`train` is a federated run; the others are the papers' smaller measurements. All take ``(settings, seed, checkpoint,
progress)`` and return the tidy record's columns, so that `experiments.sweep` can cache, resume and spread any of them.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pandas as pd
import sklearn.cluster
import torch

from fedclust import algorithms, datasets, geometry, models, partition, privacy, scenario
from fedclust.algorithms import cafa
from fedclust.algorithms.base import Method, Trainer, mean_by
from fedclust.algorithms.fedavg import FedAvg
from fedclust.algorithms.ocfl import cluster_parameters, coordinates
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.metrics import clustering, purity
from fedclust.models import Model
from fedclust.rng import key, stream
from fedclust.simulation import keep_freed_memory, run
from fedclust.training import LocalSGD

Settings = dict[str, Any]
Progress = Callable[[int, int], None] | None


def train(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """One method on one federation, round by round."""
    fed, events = with_events(federation(settings, seed), settings)
    model = network(settings, fed)
    return run(
        method(settings, model),
        fed,
        model,
        rounds=settings["rounds"],
        seed=seed,
        events=events,
        eval_every=settings.get("eval_every", 1),
        checkpoint=checkpoint,
        progress=progress,
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
    return replace(kind(fed.shape, fed.classes, **rest), device=settings.get("train", {}).get("device", "cpu"))


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
    known = [m["name"] for m in algorithms.catalogue()] if module is algorithms else sorted(module.__all__)
    if kind not in known:
        raise ValueError(f"{what} {kind!r} is not known: {module.__name__} has {', '.join(known)}")
    return getattr(module, kind), rest


@lru_cache(maxsize=4)
def _dataset(text: str) -> Dataset:
    wanted = json.loads(text)
    mean, std, pooled = wanted.pop("mean", None), wanted.pop("std", None), wanted.pop("pooled", False)
    shrink, (n, n_test) = wanted.pop("shrink", 1), wanted.pop("first", (None, None))
    data = datasets.load(**wanted)
    data = replace(data, x=data.x[:n], y=data.y[:n], x_test=data.x_test[:n_test], y_test=data.y_test[:n_test])
    data = data.shrunk(shrink) if shrink > 1 else data
    data = data.pooled() if pooled else data
    return data if mean is None else data.scaled(tuple(mean), tuple(std))


_latest: dict[tuple[str, str, int], Federation] = {}


def _federation(data: str, split: str, seed: int) -> Federation:
    """Methods compared at one seed share the split: trials of one seed run one after another."""
    wanted = data, split, seed
    found = _latest.get(wanted)
    if found is None:
        _latest.clear()  # first: the next may then have its place in memory
        kind, rest = named(json.loads(split), partition, "partition")
        found = _latest[wanted] = kind(_dataset(data), seed=seed, **rest)
    return found


def settle() -> None:
    """Make this process a worker: trials are spread over processes, more threads would only fight for the cores."""
    torch.set_num_threads(1)
    keep_freed_memory(large=True)


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


def alone(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """OCFL: all clients train alone from one model; after each epoch (`round`, from 1) every estimator clusters them.

    Estimators see the models in units of the median distance. `ari` counts noise as clusters of one; `found` clusters
    are of two or more, `noise` is the rest. With an `attack` a share `poisoned` of the clients trains on random labels
    ("labels"), or sends its update reversed ("flip") or Gaussian of the same length ("noise"). `ari` is then that of
    the honest, `apart` the share of the poisoned that are with no honest client, `lost` the honest that are noise.
    """
    fed, attack = federation(settings, seed), settings.get("attack")
    model, bad = network(settings, fed), torch.zeros(len(fed), dtype=torch.bool)
    train, everyone, draw = trainer(settings, model), torch.arange(len(fed)), stream(seed, "attack")
    if attack:
        bad[torch.randperm(len(fed), generator=draw)[: round(settings["poisoned"] * len(fed))]] = True
    if attack == "labels":
        fed = replace(fed, y=torch.where(bad[:, None], torch.randint(fed.classes, fed.y.shape, generator=draw), fed.y))
    start, rows = model.init(seed), []
    theta = start.expand(len(fed), -1)
    for e in range(settings["epochs"]):
        theta = train(theta, fed, everyone, key(seed, "alone"), e)
        update, sent = theta - start, theta.clone()
        if attack == "flip":
            sent[bad] = start - update[bad]
        elif attack == "noise":
            false = torch.randn(int(bad.sum()), model.size, generator=draw)
            sent[bad] = start + false * (update[bad].norm(dim=1) / false.norm(dim=1))[:, None]
        points = coordinates(sent)
        points = points / geometry.gaps(points)[*torch.triu_indices(len(fed), len(fed), 1)].median()
        for name, wanted in settings["estimators"].items():
            kind, options = named(wanted, sklearn.cluster, "estimator")
            labels = cluster_parameters(points, kind(**options))
            single = labels.bincount()[labels] == 1
            scores = {"found": float(len(labels[~single].unique())), "noise": float(single.sum())}
            scores["ari"] = clustering(labels[~bad], fed.group[~bad])["ari"]
            if attack:
                apart = ~torch.isin(labels, labels[~bad])
                scores |= {"apart": float(apart[bad].double().mean()), "lost": float(single[~bad].double().mean())}
            rows += [(name, seed, e + 1, metric, value) for metric, value in scores.items()]
        if progress is not None:
            progress(e + 1, settings["epochs"])
    return pd.DataFrame(rows, columns=["algorithm", "seed", "round", "metric", "value"])


def alignment(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """OCFL, fig. 1: mean cosine of the models that clients return, and of their updates, within and across groups."""
    fed, rows = federation(settings, seed), []
    model = network(settings, fed)
    algorithm, everyone = method(settings, model), torch.arange(len(fed))
    state = algorithm.init(model.init(seed), fed, seed)
    i, j = torch.triu_indices(len(fed), len(fed), 1)
    same = fed.group[i] == fed.group[j]
    for t in range(settings["rounds"]):
        starts = state.models[state.labels]
        ends = algorithm.train(starts, fed, everyone, seed, t)
        for what, vectors in (("parameters", ends), ("updates", ends - starts)):
            cos = geometry.cosine(vectors)[i, j]
            rows += [(t, f"{what}, same", float(cos[same].mean())), (t, f"{what}, different", float(cos[~same].mean()))]
        known = replace(algorithm, train=lambda *_, ends=ends: ends)  # type: ignore[arg-type]  # not trained twice
        state, _ = known.step(state, fed, seed, t)
        if progress is not None:
            progress(t + 1, settings["rounds"])
    found = pd.DataFrame(rows, columns=["round", "metric", "value"])
    return found.assign(algorithm=type(algorithm).__name__, seed=seed)


def restricted(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """OCFL's control: FedAvg's last model, which on a client may only answer labels that the client's cluster holds."""
    fed = federation(settings, seed)
    model = network(settings, fed)
    ocfl = method(settings, model)
    labels = ocfl.init(model.init(seed), fed, seed).labels
    single = FedAvg(ocfl.train, settings["method"]["fraction"])
    state = single.init(model.init(seed), fed, seed)
    for t in range(settings["rounds"]):
        state, _ = single.step(state, fed, seed, t)
        if progress is not None:
            progress(t + 1, settings["rounds"])
    held = partition.class_counts(fed) > 0
    rows = []
    for i, k in enumerate(labels.tolist()):
        x, y, real = (part[i] for part in fed.half("test"))
        logits = model.logits(state.models[0], x[real]).masked_fill(~held[labels == k].any(0), -torch.inf)
        rows.append((int(fed.ids[i]), k, float((logits.argmax(1) == y[real]).double().mean())))
    found = pd.DataFrame(rows, columns=["client", "cluster", "value"])
    return found.assign(algorithm="restricted", seed=seed, round=settings["rounds"] - 1, metric="accuracy")


def forced(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """FedAC, fig. 1: how well a split would divide all clients if it came in one of the rounds `asked` of FedAvg.

    `kept` is the share of clients on the side of most of their true group, `ari` that of the two sides and the groups.
    """
    fed, rows = federation(settings, seed), []
    model, last = network(settings, fed), max(settings["asked"])
    fedac: Any = method(settings, model)
    fedac = replace(fedac, alpha=torch.inf, beta=2.0)  # gates open
    plain = FedAvg(fedac.train, settings["method"]["fraction"])
    state = plain.init(model.init(seed), fed, seed)
    for t in range(last + 1):
        if t in settings["asked"]:
            labels = fedac.step(state, fed, seed, t)[0].labels
            rows += [(t, "kept", purity(fed.group, labels)), (t, "ari", clustering(labels, fed.group)["ari"])]
        state, _ = plain.step(state, fed, seed, t)
        if progress is not None:
            progress(t + 1, last + 1)
    return pd.DataFrame(rows, columns=["round", "metric", "value"]).assign(algorithm="forced", seed=seed)


def iid_found(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """CAFA, tables 2 and 3: how well CBCC tells IID clients in each of the `cases` (how many are, how many are not).

    `k` is the number of clusters, by silhouette where `asked` is 0. `silhouette` has a row for every k. No images: the
    labels are `each` per class.
    """
    y, rows = torch.arange(settings["classes"]).repeat_interleave(settings["each"]), []
    for done, (n, other) in enumerate(settings["cases"]):
        counts, group = partition.iid_mix_counts(y, n, other, generator=settings["generator"], seed=seed)
        vectors, truth = counts.double() / counts.sum(1, keepdim=True), group == 0
        best, silhouettes = cafa.best_k(vectors, seed)
        rows += [(n, other, 0, k, "silhouette", value) for k, value in silhouettes.items()]
        for asked in (0, *settings.get("clusters", [])):
            k = asked or best
            chosen = cafa.iid(cafa.cbcc(vectors, k, seed))
            right, hits = (chosen == truth).double().mean(), (chosen & truth).sum().double()
            scores = {"accuracy": right, "precision": hits / chosen.sum(), "recall": hits / truth.sum()}
            scores["F1"] = 2 * hits / (chosen.sum() + truth.sum())
            rows += [(n, other, asked, k, metric, float(value)) for metric, value in scores.items()]
        if progress is not None:
            progress(done + 1, len(settings["cases"]))
    found = pd.DataFrame(rows, columns=["iid", "other", "asked", "k", "metric", "value"])
    return found.assign(algorithm=settings["generator"], seed=seed)


def weighing(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """CAFA from the inside: each round's clients and their shares of the mean by CBCC, by ABFA and by both.

    `right` is the accuracy of the model of `client` on the validation samples of `other`; -1 where there is no other.
    """
    fed, rows = federation(settings, seed), []
    model = network(settings, fed)
    algorithm = method(settings, model)
    assert isinstance(algorithm, cafa.CAFA)
    state = algorithm.init(model.init(seed), fed, seed)
    for t in range(settings["rounds"]):
        chosen = algorithm.choose(state, fed, seed, t)
        theta = algorithm.train(state.models[state.labels[chosen]], fed, chosen, seed, t)  # (m, P)
        present, ids, cluster = fed.take(chosen), fed.ids[chosen].tolist(), state.memory["cluster"][chosen].tolist()
        right = cafa.shared_accuracy(model, theta, present)  # (m, m)
        weights = {"CBCC": cafa.CBCC.weigh(algorithm, state, theta, fed, chosen)}
        weights["ABFA"] = cafa.accuracy_weights(right, present.half("val")[2].sum(1))
        weights["CAFA"] = weights["CBCC"] * weights["ABFA"]
        for name, values in weights.items():
            shares = (values / values.sum()).tolist()
            rows += [(t, i, -1, c, name, share) for i, c, share in zip(ids, cluster, shares, strict=True)]
        for i, c, line in zip(ids, cluster, right.tolist(), strict=True):
            rows += [(t, i, j, c, "right", value) for j, value in zip(ids, line, strict=True)]
        state = state._replace(models=mean_by(theta, state.labels[chosen], weights["CAFA"], state.models))
        if progress is not None:
            progress(t + 1, settings["rounds"])
    found = pd.DataFrame(rows, columns=["round", "client", "other", "cluster", "metric", "value"])
    return found.assign(algorithm="CAFA", seed=seed)


def stretched(lr: float, momentum: float, full: int, steps: int) -> float:
    """The rate at which `steps` steps from rest lead as far under one gradient as `full` steps do at `lr`."""
    reach = [sum((1 - momentum**k) / (1 - momentum) for k in range(1, n + 1)) for n in (full, steps)]
    return lr * reach[0] / reach[1]


def averaged(settings: Settings, seed: int, checkpoint: str | None = None, progress: Progress = None) -> pd.DataFrame:
    """`train` in short: each metric's mean over the clients. For many rounds with many clients that behave alike."""
    record = train(settings, seed, checkpoint, progress)
    means = record.groupby(["algorithm", "seed", "round", "metric"], observed=True).value.mean().reset_index()
    means.attrs = record.attrs
    return means
