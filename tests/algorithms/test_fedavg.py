import pytest
import torch

from fedclust.algorithms import FedAvg, FedProx, LocalOnly
from fedclust.algorithms.base import State, cost, mean_by, sample, sample_within
from fedclust.simulation import run
from tests.algorithms.toy import Add, Toward, toy_federation, toy_model

TARGETS = torch.tensor([[1.0, 0.0], [3.0, 4.0], [-1.0, 8.0], [0.0, 1.0]])
START = torch.tensor([1.0, 2.0])


def accuracy(record):
    return record[record.metric.isin(["accuracy", "loss"])].value.tolist()


def test_a_round_by_hand():
    """Half way from (1, 2) to (1, 0) and to (3, 4): (1, 1) and (2, 3); with 1 and 3 samples (1.75,
    2.5).
    """
    fed, method = toy_federation([1, 3]), FedAvg(Toward(TARGETS, 0.5))
    state, info = method.step(method.init(START, fed, 0), fed, 0, 0)
    assert state.models.tolist() == [[1.75, 2.5]] and state.labels.tolist() == [0, 0]
    assert (info["down"], info["up"], info["extra"], info["bytes"]) == (2, 2, 0, 4 * 2 * 4)
    plain, _ = FedAvg(Toward(TARGETS, 0.5), weighted=False).step(
        method.init(START, fed, 0), fed, 0, 0
    )
    assert plain.models.tolist() == [[1.5, 2.0]]


def test_only_the_sampled_clients_count():
    fed, method = toy_federation(4), FedAvg(Toward(TARGETS), 0.5)
    seen = set()
    for t in range(12):
        state, info = method.step(method.init(START, fed, 0), fed, 0, t)
        who = info["trained"].nonzero()[:, 0]
        assert len(who) == 2 and state.models[0].equal(TARGETS[who].mean(0)) and info["up"] == 2
        seen |= set(who.tolist())
    assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("n", "fraction", "m"), [(10, 0.1, 1), (10, 0.05, 1), (9, 0.25, 2), (3, 1.0, 3), (1, 0.1, 1)]
)
def test_sizes_of_samples(n, fraction, m):
    chosen = sample(toy_federation(n), fraction, 0, 0)
    assert len(chosen) == m == len(chosen.unique()) and chosen.equal(chosen.sort().values)


def test_a_sample_is_of_names_not_of_positions():
    fed, order = toy_federation(8), torch.tensor([5, 2, 7, 0, 1, 6, 3, 4])
    mixed = fed.take(order)
    for t in range(5):
        assert fed.ids[sample(fed, 0.5, 1, t)].tolist() == sorted(
            mixed.ids[sample(mixed, 0.5, 1, t)].tolist()
        )
    assert set(sample(fed, 0.5, 1, 0, among=torch.tensor([1, 6])).tolist()) < {1, 6}


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5])
def test_impossible_fractions(fraction):
    with pytest.raises(ValueError, match=rf"fraction={fraction}: .* in \(0, 1\]"):
        sample(toy_federation(2), fraction, 0, 0)


def test_every_cluster_gives_its_share():
    labels = torch.tensor([0, 0, 0, 0, 2, 2, 5])
    chosen = sample_within(toy_federation(7), 0.5, labels, 0, 0)
    assert labels[chosen].tolist() == [0, 0, 2, 5]


def test_mean_by_keeps_the_model_of_a_cluster_without_clients():
    theta, models = (
        torch.tensor([[2.0, 0.0], [4.0, 6.0], [1.0, 1.0]]),
        torch.tensor([[9.0, 9.0], [8.0, 8.0], [7.0, 7.0]]),
    )
    means = mean_by(theta, torch.tensor([0, 0, 2]), torch.tensor([3, 1, 5]), models)
    assert means.tolist() == [[2.5, 1.5], [8.0, 8.0], [1.0, 1.0]]


def test_costs_by_hand():
    state = State(torch.zeros(2, 10), torch.tensor([0, 1, 0, 1]))
    info = cost(state, torch.tensor([1, 3]), down=5, extra=1)
    assert (info["down"], info["up"], info["extra"], info["bytes"]) == (5, 2, 1, 7 * 10 * 4)
    assert info["trained"].tolist() == [0, 1, 0, 1]


def test_fedprox_by_hand_and_without_a_pull():
    fed, start = toy_federation([1, 3]), FedAvg(Toward(TARGETS)).init(START, toy_federation(2), 0)
    held, _ = FedProx(Toward(TARGETS), mu=1.0).step(
        start, fed, 0, 0
    )  # 1 / (1 + 1) of the way: as in the first test
    assert held.models.tolist() == [[1.75, 2.5]]
    model = toy_model()
    train, fed = Toward(torch.randn(4, 4), 0.3, model=model), toy_federation([1, 2, 3, 4])
    a, b = (
        run(m, fed, model, rounds=4, seed=0)
        for m in (FedAvg(train, 0.5), FedProx(train, mu=0.0, fraction=0.5))
    )
    assert accuracy(a) == accuracy(b)


def test_local_only_never_mixes():
    fed, method = toy_federation(3), LocalOnly(Toward(TARGETS, 0.5))
    state = method.init(START, fed, 0)
    for t in range(2):
        state, info = method.step(state, fed, 0, t)
    torch.testing.assert_close(state.models, START + 0.75 * (TARGETS[:3] - START))
    assert (info["down"], info["up"], info["bytes"]) == (0, 0, 0) and info["trained"].sum() == 3


def test_newcomers_join_where_their_update_points():
    """From the middle (0, 0) of (4, 0) and (-4, 0): the update (-1, 5) has cosine -0.2 and 0.2."""
    fed = toy_federation(3)
    state = State(torch.tensor([[4.0, 0.0], [-4.0, 0.0]]), torch.tensor([0, 1]))
    admitted = FedAvg(Add(torch.tensor([[0.0, 0.0], [0.0, 0.0], [-1.0, 5.0]]))).admit(
        state, fed, 0, 0
    )
    assert admitted.labels.tolist() == [0, 1, 1] and admitted.models.equal(state.models)
    alone = State(state.models[:1], torch.tensor([0, 0]))
    assert FedAvg(Toward(TARGETS)).admit(alone, fed, 0, 0).labels.tolist() == [0, 0, 0]
    assert not FedAvg(Toward(TARGETS)).trains_newcomers(alone)
