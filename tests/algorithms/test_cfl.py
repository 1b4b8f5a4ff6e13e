import math
from dataclasses import dataclass

import pytest
import torch

from fedclust.algorithms import CFL, FedAvg
from fedclust.algorithms.base import State
from fedclust.algorithms.cfl import bipartition
from fedclust.geometry import distance
from fedclust.models import mlp
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.toy import Add, Toward, easy_federation, toy_federation, toy_model

ZERO = torch.zeros(2)
OPPOSED = torch.tensor(
    [[2.0, 0.0], [2.0, 1.0], [-2.0, 0.0], [-2.0, -1.0]]
)  # mean 0, the longest sqrt(5) = 2.24


def clusters(labels):
    return {frozenset((labels == k).nonzero()[:, 0].tolist()) for k in labels.unique().tolist()}


def one_step(method, fed, state=None, t=0):
    return method.step(method.init(ZERO, fed, 0) if state is None else state, fed, 0, t)


def test_a_split_by_hand():
    state, info = one_step(CFL(Add(OPPOSED), warmup=0), toy_federation(4))
    assert clusters(state.labels) == {frozenset({0, 1}), frozenset({2, 3})}
    assert state.models.tolist() == [[-2.0, -0.5], [2.0, 0.5]]  # each half's mean, not the parent's
    assert (
        info["splits"] == 1
        and info["mean_norm"] == 0
        and info["max_norm"] == pytest.approx(math.sqrt(5))
    )
    state, info = one_step(CFL(Add(OPPOSED), warmup=0), toy_federation(4), state)
    assert info["splits"] == 0  # pairs stay together; |(2, 0.5)| = 2.06 is no standstill either
    assert info["mean_norm"] == pytest.approx(math.hypot(2, 0.5))


@pytest.mark.parametrize(
    ("settings", "split"),
    [
        ({}, True),
        ({"eps2": 2.24}, False),  # nobody moves further than 2.236
        ({"eps2": 2.23}, True),
        ({"warmup": 1}, False),
    ],
)
def test_the_gates(settings, split):
    state, _ = one_step(CFL(Add(OPPOSED), **{"warmup": 0} | settings), toy_federation(4))
    assert len(state.models) == 1 + split


def test_the_gate_of_the_mean_is_weighted_like_the_model():
    """With 3 : 3 : 1 : 1 samples the mean update is (1, 0.25): length 1.03."""
    fed = toy_federation([3, 3, 1, 1])
    for eps1, models in ((1.03, 1), (1.04, 2)):
        assert len(one_step(CFL(Add(OPPOSED), eps1=eps1, warmup=0), fed)[0].models) == models


def test_two_clients_never_split():
    state, _ = one_step(CFL(Add(OPPOSED[[0, 2]]), warmup=0), toy_federation(2))
    assert len(state.models) == 1


def test_complete_linkage_not_single():
    """Directions 0, 40, 84, 130 degrees: single linkage would chain 0-40-84 against 130; the widest
    angle within
    {0, 40, 84} is 84, within {84, 130} only 46."""
    angles = torch.tensor([0.0, 40.0, 84.0, 130.0]).deg2rad()
    vectors = torch.stack([angles.cos(), angles.sin()], 1)
    assert clusters(bipartition(distance(torch.zeros_like(vectors), vectors, "cosine"))) == {
        frozenset({0, 1}),
        frozenset({2, 3}),
    }


def test_a_second_split_goes_by_clients_not_by_rows_of_the_cluster():
    """First the even against the odd clients; then the odd ones, rows 0, 1, 2 of their cluster, are
    {1} and {3, 5}.
    Only they move further than 4."""
    updates = torch.tensor(
        [[3.0, 0.0], [-3.0, 3.0], [3.0, 0.1], [-3.0, -3.0], [3.0, -0.1], [-3.0, -3.1]]
    )
    method, fed = CFL(Add(updates), eps1=10, eps2=4, warmup=0), toy_federation(6)
    state, _ = one_step(method, fed)
    even = frozenset({0, 2, 4})
    assert clusters(state.labels) == {even, frozenset({1, 3, 5})}
    state, _ = one_step(method, fed, state)
    assert clusters(state.labels) == {even, frozenset({1}), frozenset({3, 5})}
    state, info = one_step(method, fed, state)
    # three rounds of the even ones, mean (3, 0): the first is theirs alone as well
    torch.testing.assert_close(state.models[state.labels[0]], torch.tensor([9.0, 0.0]))
    assert info["splits"] == 0


@dataclass(frozen=True, eq=False)
class ByRound:
    """Client `id` adds steps[t, id]."""

    steps: torch.Tensor
    model: object = None

    def __call__(self, theta, fed, clients, seed, t):
        return theta + self.steps[t, fed.ids[clients]]


def test_no_stale_updates_under_partial_participation():
    """In round 0 clients 0, 1 pull against 2, 3; in round 1 it is 0, 2 against 1, 3. Whoever is
    absent in round 1 is
    divided by what it would send now, and pays one more training."""
    now = OPPOSED[[0, 2, 1, 3]]
    method, fed = (
        CFL(ByRound(torch.stack([OPPOSED, now])), fraction=0.5, eps1=10, warmup=1),
        toy_federation(4),
    )
    state, _ = one_step(method, fed)
    assert len(state.models) == 1
    new, info = one_step(method, fed, state, t=1)
    assert clusters(new.labels) == {frozenset({0, 2}), frozenset({1, 3})}
    assert (info["up"], info["down"], info["extra"]) == (4, 4, 2) and info["trained"].tolist() == [
        1,
        1,
        1,
        1,
    ]
    ends = state.models + now  # of all four, each half's own members
    for members in ([0, 2], [1, 3]):
        mean = ends[members].mean(0)
        torch.testing.assert_close(new.models[new.labels[members[0]]], mean)


def test_eps1_0_is_fedavg_exactly():
    fed, model = toy_federation([1, 2, 3, 4, 5]), toy_model()
    train = Toward(torch.randn(5, 4), 0.7)
    a, b = (
        run(m, fed, model, rounds=6, seed=0)
        for m in (FedAvg(train, 0.5), CFL(train, 0.5, eps1=0.0, eps2=0.0, warmup=0))
    )
    shared = a.metric.astype(str).unique()
    b = b[b.metric.isin(shared)].reset_index(drop=True)
    for column in ("round", "client", "cluster", "value"):
        assert a[column].tolist() == b[column].tolist()


def test_newcomers_join_where_their_update_points():
    state = State(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 0, 1]))
    admitted = CFL(Add(OPPOSED)).admit(state, toy_federation(4), 0, 0)
    assert admitted.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [2, 4])
def test_finds_groups_that_contradict_each_other(groups, seed):
    fed, model = easy_federation(groups, 5, seed), mlp((1, 4, 4), 4, hidden=(16,))
    method = CFL(LocalSGD(model, lr=0.05, batch=10), eps1=0.2, eps2=0.3, warmup=10)
    record = run(method, fed, model, rounds=40, seed=seed, eval_every=40)
    assert record[record.metric == "ari"].value.iloc[-1] == 1


def test_leaves_groups_together_that_one_model_serves():
    """Groups with labels of their own do not contradict: nothing pulls at a standstill."""
    fed, model = easy_federation(2, 5, 0, skew=True), mlp((1, 4, 4), 4, hidden=(16,))
    method = CFL(LocalSGD(model, lr=0.05, batch=10), eps1=0.2, eps2=0.3, warmup=10)
    record = run(method, fed, model, rounds=25, seed=0, eval_every=25)
    last = record[record["round"] == 24]
    assert (last[last.metric == "clusters"].value == 1).all() and last[
        last.metric == "accuracy"
    ].value.mean() > 0.95
