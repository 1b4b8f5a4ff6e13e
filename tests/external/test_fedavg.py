"""FedAvg on MNIST: McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, Table 1, network 2NN, E = 1, B = 10.

The table counts the rounds until a perceptron with two hidden layers of 200 is right on 97 % of the
test images. The learning rate was tuned and is not printed. Ours is 0.05 in all three cases: it
gives 97, 191 and 501 rounds where 87, 316 and 664 are printed; 0.1 gives 57, 146 and 286.
"""

import pytest

from fedclust import partition
from fedclust.algorithms import FedAvg
from fedclust.models import mlp
from fedclust.simulation import run
from fedclust.training import LocalSGD

FEWEST, MOST = 0.5, 1.5  # rounds, in units of the printed ones


def check_rounds(data, fed, fraction, printed, every):
    """To 97 %, against the printed number."""
    model = mlp(data.shape, 10, hidden=(200, 200))
    assert model.size == 199_210  # as printed
    fedavg = FedAvg(LocalSGD(model, lr=0.05, batch=10), fraction)
    record = run(fedavg, fed, model, rounds=round(MOST * printed), seed=0, eval_every=every)
    accuracy = record[record.metric == "accuracy"].groupby("round").value.mean()
    assert accuracy.max() >= 0.97
    assert accuracy.index[accuracy >= 0.97][0] + 1 >= FEWEST * printed


def test_ten_iid_clients_a_round(images):
    data = images("mnist")
    check_rounds(data, partition.iid(data, 100), 0.1, printed=87, every=3)


@pytest.mark.external
def test_one_iid_client_a_round(images):
    data = images("mnist")
    check_rounds(data, partition.iid(data, 100), 0.01, printed=316, every=5)


@pytest.mark.external
def test_two_digits_a_client(images):
    """200 slices sorted by label, two for each client, ten clients a round."""
    data = images("mnist")
    fed = partition.label_slices(data, 100, slices_per_client=2)
    check_rounds(data, fed, 0.1, printed=664, every=5)
