"""FedLab's standalone pipeline, with the serial trainer that its examples use."""

import random
from importlib.metadata import version

import torch
from common import Work, clock, start
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch.utils.data import DataLoader, TensorDataset


class Clients:
    def __init__(self, work: Work):
        self.sets = [TensorDataset(*pair) for pair in zip(*work.tensors, strict=True)]

    def get_dataloader(self, i: int, batch_size: int) -> DataLoader:
        return DataLoader(self.sets[i], batch_size=batch_size, shuffle=True)


class Trainer(SGDSerialClientTrainer):
    momentum = 0.0

    def train(self, *args):
        if self.momentum:  # each client's momentum starts fresh
            self.optimizer = torch.optim.SGD(self._model.parameters(), self.lr, self.momentum)
        return super().train(*args)


class Timed(StandalonePipeline):
    def evaluate(self) -> None:
        self.times.append(clock())


def main() -> None:
    work = start()
    random.seed(0)
    torch.manual_seed(0)
    trainer = Trainer(work.net(), len(work.x))
    trainer.setup_dataset(Clients(work))
    trainer.setup_optim(work.epochs, work.batch, work.lr)
    trainer.momentum = work.momentum
    handler = SyncServerHandler(work.net(), work.rounds, work.chosen.shape[1] / len(work.x))
    pipeline = Timed(handler, trainer)
    pipeline.times = [clock()]
    pipeline.main()
    work.report(
        pipeline.times,
        work.accuracy(handler.model),
        f"fedlab {version('fedlab')}, torch {torch.__version__}",
    )


main()
