"""CAFA's own measurements: how it finds IID clients, and what its weights are."""

import pandas as pd
import torch

from fedclust.algorithms import cafa
from fedclust.algorithms.base import mean_by
from fedclust.experiments import build
from fedclust.experiments.build import Settings
from fedclust.experiments.parts.cafa import iid_mix_counts
from fedclust.experiments.progress import Tell, quiet

__all__ = ["iid_found", "weighing"]


def iid_found(settings: Settings, seed: int, progress: Tell = quiet) -> pd.DataFrame:
    """How well CBCC tells IID clients in each of the `cases`: IID clients, others (tables 2 and 3).

    `k` is the number of clusters, chosen by silhouette where `asked` is 0. `silhouette` has a row
    for every k. There are no images, only `each` labels per class.
    """
    y = torch.arange(settings["classes"]).repeat_interleave(settings["each"])
    generator, cases, rows = settings["generator"], settings["cases"], []
    for done, (iid, other) in enumerate(cases):
        counts, group = iid_mix_counts(y, iid, other, generator=generator, seed=seed)
        vectors, truth = counts.double() / counts.sum(1, keepdim=True), group == 0
        best, silhouettes = cafa.best_k(vectors, seed)
        rows += [(iid, other, 0, k, "silhouette", value) for k, value in silhouettes.items()]
        for asked in (0, *settings.get("clusters", [])):
            k = asked or best
            found = cafa.iid(cafa.cbcc(vectors, k, seed))
            hits = (found & truth).sum().double()
            scores = {
                "accuracy": (found == truth).double().mean(),
                "precision": hits / found.sum(),
                "recall": hits / truth.sum(),
                "F1": 2 * hits / (found.sum() + truth.sum()),
            }
            rows += [(iid, other, asked, k, name, float(value)) for name, value in scores.items()]
        progress(done + 1, len(cases))
    record = pd.DataFrame(rows, columns=["iid", "other", "asked", "k", "metric", "value"])
    return record.assign(algorithm=generator, seed=seed)


def weighing(settings: Settings, seed: int, progress: Tell = quiet) -> pd.DataFrame:
    """Each round's clients and their shares of the mean by CBCC, by ABFA and by both.

    `right` is the accuracy of the model of `client` on the validation samples of `other`, which is
    -1 in all other rows.
    """
    fed, model, method = build.everything(settings, seed)
    assert isinstance(method, cafa.CAFA)
    state, rows, rounds = method.init(model.init(seed), fed, seed), [], settings["rounds"]
    for t in range(rounds):
        chosen = method.choose(state, fed, seed, t)
        served = state.labels[chosen]
        theta = method.train(state.models[served], fed, chosen, seed, t)  # (m, P)
        ids, clusters = fed.ids[chosen].tolist(), state.memory["cluster"][chosen].tolist()
        present = fed.take(chosen)
        right = cafa.shared_accuracy(model, theta, present)  # (m, m)
        weights = {
            "CBCC": cafa.CBCC.weigh(method, state, theta, fed, chosen),
            "ABFA": cafa.accuracy_weights(right, present.half("val")[2].sum(1)),
        }
        weights["CAFA"] = weights["CBCC"] * weights["ABFA"]
        for name, values in weights.items():
            shares = (values / values.sum()).tolist()
            for client, cluster, share in zip(ids, clusters, shares, strict=True):
                rows.append((t, client, -1, cluster, name, share))
        for client, cluster, line in zip(ids, clusters, right.tolist(), strict=True):
            for other, value in zip(ids, line, strict=True):
                rows.append((t, client, other, cluster, "right", value))
        state = state._replace(models=mean_by(theta, served, weights["CAFA"], state.models))
        progress(t + 1, rounds)
    columns = ["round", "client", "other", "cluster", "metric", "value"]
    return pd.DataFrame(rows, columns=columns).assign(algorithm="CAFA", seed=seed)
