"""OCFL's own measurements: clusterings of clients that train alone, cosines, and a control."""

from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from fedclust import geometry, partition
from fedclust.algorithms.fedavg import FedAvg
from fedclust.algorithms.ocfl import cluster_parameters, coordinates
from fedclust.experiments import build
from fedclust.experiments.build import Settings
from fedclust.experiments.progress import Tell, quiet
from fedclust.federation import Federation
from fedclust.metrics import clustering
from fedclust.rng import key, stream

__all__ = ["alignment", "alone", "restricted"]


def alone(settings: Settings, seed: int, progress: Tell = quiet) -> pd.DataFrame:
    """All clients train alone from one model; after each epoch every estimator clusters them.

    `round` is the epoch, from 1. `found` counts clusters of two or more clients, `noise` the other
    clients; `ari` takes these as clusters of one. With an `attack` a share `poisoned` of the
    clients trains on random labels ("labels"), or sends its update reversed ("flip") or replaced by
    Gaussian noise of the same length ("noise"). Then `ari` is that of the honest clients, `apart`
    the share of poisoned clients in clusters without honest ones, `lost` the share of honest
    clients that are noise.
    """
    fed, attack, epochs = (
        build.federation(settings, seed),
        settings.get("attack"),
        settings["epochs"],
    )
    model = build.network(settings, fed)
    train, draw = build.trainer(settings, model), stream(seed, "attack")
    poisoned = torch.zeros(len(fed), dtype=torch.bool)
    if attack:
        count = round(settings["poisoned"] * len(fed))
        poisoned[torch.randperm(len(fed), generator=draw)[:count]] = True
    if attack == "labels":
        false_labels = torch.randint(fed.classes, fed.y.shape, generator=draw)
        fed = replace(fed, y=torch.where(poisoned[:, None], false_labels, fed.y))
    start, rows = model.init(seed), []
    theta = start.expand(len(fed), -1)
    for epoch in range(epochs):
        theta = train(theta, fed, torch.arange(len(fed)), key(seed, "alone"), epoch)
        points = in_median_distances(coordinates(sent(theta, start, attack, poisoned, draw)))
        for name, wanted in settings["estimators"].items():
            labels = cluster_parameters(points, build.estimator(wanted))
            scores = clustering_scores(labels, fed, poisoned if attack else None)
            rows += [(name, seed, epoch + 1, metric, value) for metric, value in scores.items()]
        progress(epoch + 1, epochs)
    return pd.DataFrame(rows, columns=["algorithm", "seed", "round", "metric", "value"])


def sent(
    theta: Tensor, start: Tensor, attack: str | None, poisoned: Tensor, draw: torch.Generator
) -> Tensor:
    """The models (N, P) that clients send after training from `start` (P,)."""
    update, models = theta - start, theta.clone()
    if attack == "flip":
        models[poisoned] = start - update[poisoned]
    elif attack == "noise":
        false = torch.randn(int(poisoned.sum()), len(start), generator=draw)
        scale = update[poisoned].norm(dim=1) / false.norm(dim=1)
        models[poisoned] = start + false * scale[:, None]
    return models


def in_median_distances(points: Tensor) -> Tensor:
    """The points (N, d) in units of the median distance between two of them."""
    i, j = torch.triu_indices(len(points), len(points), 1)
    return points / geometry.gaps(points)[i, j].median()


def clustering_scores(labels: Tensor, fed: Federation, poisoned: Tensor | None) -> dict[str, float]:
    honest = torch.ones(len(fed), dtype=torch.bool) if poisoned is None else ~poisoned
    single = labels.bincount()[labels] == 1
    scores = {"found": float(len(labels[~single].unique())), "noise": float(single.sum())}
    scores["ari"] = clustering(labels[honest], fed.group[honest])["ari"]
    if poisoned is not None:
        apart = ~torch.isin(labels, labels[honest])
        scores["apart"] = float(apart[poisoned].double().mean())
        scores["lost"] = float(single[honest].double().mean())
    return scores


def alignment(settings: Settings, seed: int, progress: Tell = quiet) -> pd.DataFrame:
    """Mean cosine of returned models and of updates, within and across groups (fig. 1)."""
    fed, model, method = build.everything(settings, seed)
    state, rows = method.init(model.init(seed), fed, seed), []
    i, j = torch.triu_indices(len(fed), len(fed), 1)
    same = fed.group[i] == fed.group[j]
    for t in range(settings["rounds"]):
        starts = state.models[state.labels]
        ends = method.train(starts, fed, torch.arange(len(fed)), seed, t)
        for name, vectors in (("parameters", ends), ("updates", ends - starts)):
            cosines = geometry.cosine(vectors)[i, j]
            rows.append((t, f"{name}, same", float(cosines[same].mean())))
            rows.append((t, f"{name}, different", float(cosines[~same].mean())))
        already_trained = replace(method, train=lambda *_, ends=ends: ends)
        state, _ = already_trained.step(state, fed, seed, t)
        progress(t + 1, settings["rounds"])
    record = pd.DataFrame(rows, columns=["round", "metric", "value"])
    return record.assign(algorithm=type(method).__name__, seed=seed)


def restricted(settings: Settings, seed: int, progress: Tell = quiet) -> pd.DataFrame:
    """FedAvg's last model may only answer labels that the client's cluster holds."""
    fed, model, ocfl = build.everything(settings, seed)
    labels = ocfl.init(model.init(seed), fed, seed).labels
    fedavg = FedAvg(ocfl.train, settings["method"]["fraction"])
    state, rows, rounds = fedavg.init(model.init(seed), fed, seed), [], settings["rounds"]
    for t in range(rounds):
        state, _ = fedavg.step(state, fed, seed, t)
        progress(t + 1, rounds)
    held = partition.class_counts(fed) > 0  # (N, classes)
    for i, k in enumerate(labels.tolist()):
        x, y, real = (part[i] for part in fed.half("test"))
        forbidden = ~held[labels == k].any(0)  # (classes,)
        answers = (
            model.logits(state.models[0], x[real]).masked_fill(forbidden, -torch.inf).argmax(1)
        )
        rows.append((int(fed.ids[i]), k, float((answers == y[real]).double().mean())))
    record = pd.DataFrame(rows, columns=["client", "cluster", "value"])
    return record.assign(algorithm="restricted", seed=seed, round=rounds - 1, metric="accuracy")
