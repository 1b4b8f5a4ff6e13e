"""Apple's pfl-research. Its datasets keep their batches from epoch to epoch; that saves it the
shuffling.
"""

import pfl
import torch
from common import clock, start
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy


class Clock(TrainingProcessCallback):
    def __init__(self) -> None:
        self.times = [clock()]

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.times.append(clock())
        return False, Metrics()


def main() -> None:
    work = start()
    net = work.net()
    net.loss = lambda x, y: cross_entropy(net(x), y)
    net.metrics = lambda x, y: {"samples": Weighted(1, 1)}
    model = PyTorchModel(
        net,
        lambda *a, **kw: torch.optim.SGD(*a, momentum=work.momentum, **kw),
        torch.optim.SGD(net.parameters(), 1.0),
    )
    users = [
        PyTorchTensorDataset(pair, user_id=str(i))
        for i, pair in enumerate(zip(*work.tensors, strict=True))
    ]
    order = iter(work.chosen.flatten().tolist())
    fed = FederatedDataset(lambda i: users[i], lambda: next(order))
    timer = Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds, evaluation_frequency=work.rounds + 1,
            train_cohort_size=work.chosen.shape[1], val_cohort_size=0,
        ),
        SimulatedBackend(fed, fed), model,
        NNTrainHyperParams(local_num_epochs=work.epochs, local_learning_rate=work.lr, local_batch_size=work.batch),
        NNEvalHyperParams(local_batch_size=None), callbacks=[timer], send_metrics_to_platform=False,
    )  # fmt: skip
    work.report(
        timer.times, work.accuracy(net), f"pfl {pfl.__version__}, torch {torch.__version__}"
    )


main()
