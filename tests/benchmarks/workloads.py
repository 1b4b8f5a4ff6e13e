"""What is measured: the same clients, model, batches and rate for everyone, written for the peers'
scripts."""

import json
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.algorithms.base import sample
from fedclust.experiments import Trial, build, sweep

TORCH = ("fedclust", "plain PyTorch loop", "pfl-research", "FedLab", "fluke", "Flower")


@dataclass(frozen=True)
class Workload:
    """FedAvg. `settings` are those of fedclust.experiments.build: data, partition, model; `net`
    says the model to the peers."""

    title: str
    settings: dict[str, Any]
    net: dict[str, Any]
    lr: float
    batch: int
    epochs: int = 1
    momentum: float = 0.0
    fraction: float = 0.1
    rounds: int = 12
    only: tuple[str, ...] = ()  # the peers that do it; all by default

    def tiny(self) -> "Workload":
        """To see that it runs."""
        split = self.settings["partition"]
        small = (
            {"clients": 20, "limit": 2 * self.batch}
            if split["kind"] == "iid"
            else {"clients": 4, "limit": 200}
        )
        return replace(
            self, rounds=4, epochs=1, settings=self.settings | {"partition": split | small}
        )

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The data and the settings as the scripts read them, once."""
        paths = folder / "work.npz", folder / "settings.json"
        fed = build.federation(self.settings, 0)
        model = build.network(self.settings, fed)
        settings = {
            "lr": self.lr,
            "batch": self.batch,
            "epochs": self.epochs,
            "momentum": self.momentum,
            "rounds": self.rounds,
            "classes": fed.classes,
            "model": self.settings["model"],
            "clients": len(fed),
            "samples": fed.x.shape[1],
            **self.net,
        }
        if paths[0].exists() and paths[1].exists() and json.loads(paths[1].read_text()) == settings:
            return paths
        folder.mkdir(parents=True, exist_ok=True)
        if not (fed.mask.all() and fed.mask_test.all()):
            raise ValueError(
                "the peers' scripts take clients of one size: choose a partition that makes such"
            )
        chosen = np.stack([sample(fed, self.fraction, 0, t).numpy() for t in range(self.rounds)])
        init = {f"init{i}": w.numpy() for i, w in enumerate(model.split(model.init(0)))}
        data = {
            "x": fed.x,
            "y": fed.y,
            "x_test": fed.x_test.flatten(0, 1),
            "y_test": fed.y_test.flatten(),
        }
        np.savez(
            paths[0], chosen=chosen, **init, **{name: value.numpy() for name, value in data.items()}
        )
        paths[1].write_text(json.dumps(settings))
        return paths


def equal(name: str) -> dict[str, Any]:
    """100 clients with 480 images each, all alike."""
    data = {"name": name, "stand_in": "glyphs", "mean": [0.5], "std": [0.5]}
    return {"data": data, "partition": {"kind": "iid", "clients": 100, "limit": 480}}


def net(channels: list[int], kernel: int, pool: str, hidden: list[int]) -> dict[str, Any]:
    each = [pool == "each" or i == len(channels) - 1 for i in range(len(channels))]
    return {"convolutions": [[c, kernel] for c in channels], "pool": each, "hidden": hidden}


def cnn(channels: list[int], kernel: int, pool: str, hidden: list[int]) -> dict[str, Any]:
    return {"kind": "cnn", "channels": channels, "kernel": kernel, "pool": pool, "hidden": hidden}


FIGURE = {
    "data": {"name": "emnist", "stand_in": "mnist", "mean": [0.5], "std": [0.5]},
    "partition": {"kind": "dirichlet_rotated", "clients": 15, "samples": 1000},
    "model": cnn([6, 16], 5, "each", [256]),
}
WORK = {
    "W1": Workload(
        "MNIST, perceptron 784-200-200-10, 10 of 100 clients, 480 images, batch 10",
        equal("mnist") | {"model": {"kind": "mlp", "hidden": [200, 200]}},
        net([], 0, "each", [200, 200]),
        lr=0.05,
        batch=10,
    ),
    "W2": Workload(
        "MNIST, network 32-64 3x3 and 128, 10 of 100 clients, 480 images, batch 10",
        equal("mnist") | {"model": cnn([32, 64], 3, "last", [128])},
        net([32, 64], 3, "last", [128]),
        lr=0.02,
        batch=10,
        rounds=4,
        only=TORCH,
    ),
    "W4": Workload(
        "CIFAR-10, network 6-16 5x5 and 120-84, 10 of 100 clients, 480 images, 5 epochs, batch 32, momentum",
        equal("cifar10") | {"model": cnn([6, 16], 5, "each", [120, 84])},
        net([6, 16], 5, "each", [120, 84]),
        lr=0.01,
        batch=32,
        epochs=5,
        momentum=0.9,
        rounds=5,
        only=TORCH,
    ),
    "W7": Workload(
        "EMNIST, DCFL's network 6-16 5x5 and 256, all of 15 clients, 800 images, batch 100, momentum",
        FIGURE,
        net([6, 16], 5, "each", [256]),
        lr=0.05,
        batch=100,
        momentum=0.9,
        fraction=1.0,
        rounds=6,
        only=TORCH,
    ),
}
METHODS = ({"kind": "DCFL"}, {"kind": "CFL", "eps1": 0.4, "eps2": 1.6}, {"kind": "FedAvg"})
SEEDS, ROUNDS = range(3), 60


def whole_figure(jobs: int, rounds: int = ROUNDS) -> float:
    """Seconds of DCFL's figure 4: every method and seed, all clients evaluated in every round."""
    train = {"lr": WORK["W7"].lr, "batch": WORK["W7"].batch, "momentum": WORK["W7"].momentum}
    trials = [
        Trial(FIGURE | {"train": train, "method": how, "rounds": rounds}, s, how["kind"])
        for s in SEEDS
        for how in METHODS
    ]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        sweep(trials, jobs, folder=folder)
        return time.perf_counter() - start
