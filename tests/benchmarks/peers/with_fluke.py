"""fluke. Clients forget model and optimizer between rounds; nothing is evaluated on the way."""

from importlib.metadata import version

import torch
from common import clock, start
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.utils import FederationObserver


class Clock(FederationObserver):
    def __init__(self) -> None:
        self.times = [clock()]

    def end_round(self, round: int) -> None:
        self.times.append(clock())


def main() -> None:
    work = start()
    environment, classes = FlukeENV(), work.settings["classes"]
    environment.set_seed(0)
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    sets = [
        FastDataLoader(x, y, num_labels=classes, batch_size=work.batch, shuffle=True)
        for x, y in zip(*work.tensors, strict=True)
    ]
    data = DummyDataContainer(sets, [None] * len(sets), None, classes)
    client = {
        "batch_size": work.batch, "local_epochs": work.epochs, "loss": "CrossEntropyLoss", "persistency": False,
        "optimizer": {"name": "SGD", "lr": work.lr, "momentum": work.momentum},
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
    }  # fmt: skip
    settings = DDict({"client": client, "server": {"weighted": True}, "model": work.net()})
    algorithm, timer = FedAVG(len(sets), DataSplitter(data), settings), Clock()
    algorithm.set_callbacks([timer])
    timer.times = [clock()]
    algorithm.run(work.rounds, work.chosen.shape[1] / len(sets), finalize=False)
    accuracy = work.accuracy(algorithm.server.model)
    work.report(timer.times, accuracy, f"fluke {version('fluke-fl')}, torch {torch.__version__}")


main()
