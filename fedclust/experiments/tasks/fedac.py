"""FedAC's own measurement: splits at rounds that we choose."""

from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from fedclust.algorithms.fedavg import FedAvg
from fedclust.experiments import build
from fedclust.experiments.build import Settings
from fedclust.experiments.progress import Tell, quiet
from fedclust.metrics import clustering, purity

__all__ = ["forced"]


def forced(settings: Settings, seed: int, progress: Tell = quiet) -> pd.DataFrame:
    """How well a split would divide all clients in each of the rounds `asked` of FedAvg (fig. 1).

    `kept` is the share of clients on the side of most of their true group, `ari` that of the two
    sides and the groups.
    """
    fed, model, method = build.everything(settings, seed)
    fedac: Any = replace(method, alpha=torch.inf, beta=2.0)  # both gates are open
    fedavg = FedAvg(method.train, settings["method"]["fraction"])
    state, rows, rounds = fedavg.init(model.init(seed), fed, seed), [], max(settings["asked"]) + 1
    for t in range(rounds):
        if t in settings["asked"]:
            labels = fedac.step(state, fed, seed, t)[0].labels
            rows.append((t, "kept", purity(fed.group, labels)))
            rows.append((t, "ari", clustering(labels, fed.group)["ari"]))
        state, _ = fedavg.step(state, fed, seed, t)
        progress(t + 1, rounds)
    record = pd.DataFrame(rows, columns=["round", "metric", "value"])
    return record.assign(algorithm="forced", seed=seed)
