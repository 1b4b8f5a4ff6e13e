"""IFCA on rotated MNIST: Ghosh et al., An Efficient Framework for Clustered Federated Learning,
NeurIPS 2020, Table 1, with the settings of the authors' public code (github.com/jichan3751/ifca).

Four groups see MNIST turned by 0, 90, 180 and 270 degrees; a machine has 100 images. Each round a
machine takes the model with the smallest loss on all of them, makes ten steps of gradient descent
on all of them at a rate of 0.1, and each model becomes the mean of what its machines return, 300
times. A perceptron with 200 hidden units is then right on 95.05 % of the test images, one model for
all on 88.65 %, and a machine alone on 73.66 %. There 2,400 machines take part in every round; here
480 have a fifth of the images, and 96 of them take part in a round.
"""

import pytest
import torch

from fedclust import partition
from fedclust.algorithms import IFCA, FedAvg
from fedclust.models import mlp
from fedclust.simulation import run
from fedclust.training import LocalSGD

IMAGES, ROUNDS, NEAR = 100, 300, 0.02


@pytest.fixture
def machines(images):
    return partition.rotated_groups(images("mnist"), 480, samples=IMAGES)


def last(record, metric):
    rows = record[(record.metric == metric) & (record["round"] == record["round"].max())]
    return rows.value.mean()


@pytest.mark.external
def test_four_models_and_one(machines):
    model = mlp(machines.shape, machines.classes, hidden=(200,))
    train = LocalSGD(model, lr=0.1, batch=IMAGES, epochs=10)
    how = {"rounds": ROUNDS, "seed": 0, "eval_every": ROUNDS}
    four = run(IFCA(train, k=4, fraction=0.2), machines, model, **how)
    assert last(four, "ari") == 1
    assert last(four, "accuracy") == pytest.approx(0.9505, abs=NEAR)
    one = run(FedAvg(train, fraction=0.2), machines, model, **how)
    assert last(one, "accuracy") == pytest.approx(0.8865, abs=NEAR)


@pytest.mark.external
def test_machines_alone(machines):
    """A few of them, as many steps as in all rounds together, on the test images of their group."""
    model = mlp(machines.shape, machines.classes, hidden=(200,))
    train = LocalSGD(model, lr=0.1, batch=IMAGES, epochs=10 * ROUNDS)
    some = torch.arange(0, 480, 60)
    right = []
    for row, i in zip(train(model.init(0).expand(8, -1), machines, some, 0, 0), some, strict=True):
        group = machines.group == machines.group[i]
        x, y, real = machines.x_test[group], machines.y_test[group], machines.mask_test[group]
        right.append((model.logits(row, x[real]).argmax(1) == y[real]).double().mean())
    assert torch.stack(right).mean() == pytest.approx(0.7366, abs=NEAR)
