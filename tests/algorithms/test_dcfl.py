import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning

from fedclust.algorithms import DCFL, FedAvg, dcfl
from fedclust.algorithms.base import State
from fedclust.geometry import distance
from fedclust.models import mlp
from fedclust.rng import stream
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.toy import Add, Toward, easy_federation, toy_federation, toy_model

ZERO = torch.zeros(2)
OPPOSED = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, -0.1]])
PAIRS = {frozenset({0, 1}), frozenset({2, 3})}
SIX = torch.tensor([[x, y] for x in (1.0, -1.0) for y in (-0.1, 0.0, 0.1)])
TRIPLES = {frozenset({0, 1, 2}), frozenset({3, 4, 5})}


def clusters(labels):
    return {frozenset((labels == k).nonzero()[:, 0].tolist()) for k in labels.unique().tolist()}


def served(state):
    return state.models[state.labels]


@dataclass(frozen=True, eq=False)
class ByRound:
    """Client `id` adds steps[t, id]."""

    steps: torch.Tensor
    model: object = None

    def __call__(self, theta, fed, clients, seed, t):
        return theta + self.steps[t, fed.ids[clients]]


def play(method, rounds, fed=None):
    """States and infos of the rounds."""
    fed = toy_federation(4) if fed is None else fed
    state, out = method.init(ZERO, fed, 0), []
    for t in range(rounds):
        state, info = method.step(state, fed, 0, t)
        out.append((state, info))
    return out


def test_two_rounds_by_hand():
    """Round 0, one origin: at most 0.2 within three, 2 e^2 across: two clusters, each the plain
    mean of its clients'
    models. Round 1, ends (2, y) and (-2, y). Furthest within: BD = AB - CD = (0, .2), lengths
    1.00499, omega =
    .04 / (.2 * 2.00998) = .0995, d = .2 e^.199 = .24404. Nearest across: y = .1 to y = .1, BD = (4,
    0), AB - CD =
    (2, 0), omega = 8 / (4 * 2.00998) = .99503, d = 4 e^1.99007 = 29.264. Dunn 119.9 >= 1: nothing
    changes."""
    (one, first), (two, second) = play(DCFL(Add(SIX)), 2, toy_federation(6))
    assert clusters(one.labels) == TRIPLES
    torch.testing.assert_close(served(one), torch.tensor([[1.0, 0.0]] * 3 + [[-1.0, 0.0]] * 3))
    assert math.isnan(first["dunn"]) and first["reclustered"] == first["converged"] == 1
    assert two.labels.equal(one.labels) and second["dunn"] == pytest.approx(
        29.264 / 0.24404, rel=1e-4
    )
    assert second["reclustered"] == 0 and math.isnan(second["converged"])
    torch.testing.assert_close(served(two), torch.tensor([[2.0, 0.0]] * 3 + [[-2.0, 0.0]] * 3))


DRIFTED = SIX.clone()
DRIFTED[1] = torch.tensor([-4.0, 0.0])  # client 1 runs over to the other side


@pytest.mark.parametrize("new_models", ["clients", "clusters"])
def test_a_drifting_client_changes_its_cluster_by_hand(new_models):
    """Eq. 5 of client models. Round 1 starts at (1, 0), (-1, 0); ends: (2, -.1), (-3, 0), (2, .1),
    (-2, y): client 1 is
    nearest to 4 and 5 e^2 from its own, Dunn < 1; new models (2, 0) and ((-3 - 2 - 2 - 2) / 4, 0).
    Of cluster models. Round 0 has one, (0, 0), and both clusters go on from it; ends (1, -.1), (-4,
    0), (1, .1) and
    (-1, y), means -2/3 and -1; new models (-2/3, 0) and ((-2/3 - 1 - 1 - 1) / 4, 0)."""
    method = DCFL(ByRound(torch.stack([SIX, DRIFTED])), new_models=new_models)
    (_, _), (state, info) = play(method, 2, toy_federation(6))
    assert info["dunn"] < 1 and info["reclustered"] == 1
    assert clusters(state.labels) == {frozenset({0, 2}), frozenset({1, 3, 4, 5})}
    stayed, moved = {"clients": (2.0, -2.25), "clusters": (-2 / 3, -11 / 12)}[new_models]
    torch.testing.assert_close(served(state)[:2], torch.tensor([[stayed, 0.0], [moved, 0.0]]))


def test_round_mean_is_weighted_by_samples_new_models_are_plain():
    """3 : 1 : 1 samples. Round 0 makes new models, plain; round 1 only averages inside: (3 * -.1 +
    0 + .1) / 5.
    """
    (one, _), (two, _) = play(DCFL(Add(SIX)), 2, toy_federation([3, 1, 1, 1, 1, 1]))
    torch.testing.assert_close(served(one)[0], torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(served(two)[0], torch.tensor([2.0, -0.04]))


def test_singletons_have_an_infinite_index_and_stay():
    state = State(OPPOSED.clone(), torch.arange(4))
    new, info = DCFL(Add(OPPOSED)).step(state, toy_federation(4), 0, 0)
    assert info["dunn"] == math.inf and info["reclustered"] == 0 and new.labels.equal(state.labels)


@pytest.mark.parametrize(("n", "spread"), [(1, 1.0), (2, 1.0), (5, 0.0), (3, 1.0)])
def test_nothing_to_tell_apart_is_one_cluster(n, spread, recwarn):
    """A client alone, two, equal updates, three at the corners of an equilateral triangle."""
    angles = torch.arange(n) * 2 * math.pi / 3
    steps = spread * torch.stack([angles.cos(), angles.sin()], 1)
    ((state, info),) = play(DCFL(Add(steps)), 1, toy_federation(n))
    assert state.labels.tolist() == [0] * n and len(state.models) == 1
    torch.testing.assert_close(state.models[0], steps.mean(0), atol=1e-6, rtol=0)
    assert info["converged"] == 1 and not recwarn.list


# ---- affinity propagation that does not converge


class Stubborn(ClusterMixin, BaseEstimator):
    """Converges only at the damping it wants."""

    asked: ClassVar[list] = []

    def __init__(
        self, wants=0.9, damping=0.5, convergence_iter=15, preference=None, random_state=None
    ):
        self.wants, self.damping, self.convergence_iter = wants, damping, convergence_iter
        self.preference, self.random_state = preference, random_state

    def fit_predict(self, x, y=None):
        self.asked.append((self.damping, self.random_state))
        if self.damping != self.wants:
            warnings.warn("did not converge", ConvergenceWarning, stacklevel=2)
        return (x[0] < x[0].mean()).astype(int)


@pytest.mark.parametrize(
    ("wants", "dampings"), [(0.5, [0.5]), (0.9, [0.5, 0.9]), (0.7, [0.5, 0.9])]
)
def test_more_damping_then_the_old_clusters(wants, dampings, recwarn):
    Stubborn.asked.clear()
    ((state, info),) = play(DCFL(Add(OPPOSED), estimator=Stubborn(wants)), 1)
    assert [damping for damping, _ in Stubborn.asked] == dampings
    assert all(0 <= number < 2**32 for _, number in Stubborn.asked)
    if wants == 0.7:
        assert (info["converged"], info["reclustered"]) == (0, 0)
        assert state.labels.tolist() == [0, 0, 0, 0] and state.models.tolist() == [
            [0.0, 0.0]
        ]  # FedAvg's round
    else:
        assert (info["converged"], info["reclustered"]) == (1, 1) and clusters(
            state.labels
        ) == PAIRS
    assert not recwarn.list


def test_scikit_learns_own_failure_is_heard(recwarn):
    estimator = AffinityPropagation(affinity="precomputed", max_iter=2)
    ((state, info),) = play(DCFL(Add(OPPOSED), estimator=estimator), 1)
    assert info["converged"] == 0 and state.labels.tolist() == [0, 0, 0, 0] and not recwarn.list
    assert (
        estimator.preference is None and estimator.damping == 0.5
    )  # the argument is cloned, never fitted


def test_slow_messages_are_not_taken_for_settled_ones(monkeypatch):
    """At damping 0.9 all four are still exemplars after 15 iterations: scikit-learn would call that
    converged.
    """
    d, found = distance(ZERO[None], OPPOSED, of=torch.zeros(4, dtype=torch.long)), []
    for attempt in (*dcfl.ATTEMPTS, {"damping": 0.9, "convergence_iter": 15}):
        monkeypatch.setattr(dcfl, "ATTEMPTS", (attempt,))
        found.append(clusters(DCFL(Add(OPPOSED)).cluster(d, 0)))
    assert found == [PAIRS, PAIRS, {frozenset({i}) for i in range(4)}]


# ---- similarities


def random_distances(n=12):
    points = torch.randn(n, 3, generator=stream(0, "points"), dtype=torch.float64)
    return torch.cdist(points, points)


def partition(labels):
    return {
        frozenset((torch.as_tensor(labels) == k).nonzero()[:, 0].tolist())
        for k in set(torch.as_tensor(labels).tolist())
    }


@pytest.mark.parametrize("power", [1, 2])
def test_median_preference_is_scikit_learns(power):
    d = random_distances()
    ours = DCFL(Add(OPPOSED), power=power).cluster(d, 0)
    theirs = AffinityPropagation(affinity="precomputed", random_state=0, max_iter=1000).fit_predict(
        -(d**power).numpy()
    )
    assert partition(ours) == partition(theirs)


def test_a_higher_preference_makes_more_clusters():
    counts = [
        len(DCFL(Add(OPPOSED), preference=q).cluster(random_distances(), 0).unique())
        for q in (0.0, 0.5, 0.95)
    ]
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"distance": "manhattan"}, "distance='manhattan': must be one of .*complete"),
        ({"new_models": "servers"}, "new_models='servers'.*clusters"),
        ({"recluster": "always"}, "recluster='always'.*never"),
        ({"preference": 1.5}, "preference=1.5: must be a number in"),
    ],
)
def test_settings_say_what_is_allowed(wrong, says):
    with pytest.raises(ValueError, match=says):
        DCFL(Add(OPPOSED), **wrong)


# ---- newcomers


def test_newcomers_by_equation_6_not_by_the_cosine():
    """W_G = (0, 0); models (10, 0), (-5, 2), (-5, -2); the newcomer ends at (.5, .6), from one
    origin d = |BD|
    e^(2 |BD| / (|AB| + |CD|)): to the first 9.52 e^(1.766) = 55.7, to the second 5.67 e^(1.841) =
    35.8, to the third
    6.08 e^(1.972) = 43.7. The cosine alone would take the first."""
    fed = toy_federation(4)
    state = State(torch.tensor([[10.0, 0.0], [-5.0, 2.0], [-5.0, -2.0]]), torch.tensor([0, 1, 2]))
    steps = torch.tensor([[0.0, 0.0]] * 3 + [[0.5, 0.6]])
    admitted = DCFL(Add(steps)).admit(state, fed, 0, 0)
    assert admitted.labels.tolist() == [0, 1, 2, 1] and admitted.models.equal(state.models)
    assert FedAvg(Add(steps)).admit(state, fed, 0, 0).labels.tolist() == [0, 1, 2, 0]
    assert DCFL(Add(steps), distance="cosine").admit(state, fed, 0, 0).labels.tolist() == [
        0,
        1,
        2,
        0,
    ]


def test_with_one_cluster_newcomers_train_and_join_it():
    state = State(torch.tensor([[1.0, 1.0]]), torch.tensor([0, 0]))
    method = DCFL(Add(OPPOSED))
    assert method.admit(state, toy_federation(4), 0, 0).labels.tolist() == [0, 0, 0, 0]
    assert method.trains_newcomers(state)


# ---- against simpler methods, and whole


def test_never_reclustering_is_fedavg_exactly():
    fed, model = toy_federation([1, 2, 3, 4, 5]), toy_model()
    train = Toward(torch.randn(5, 4), 0.7)
    a, b = (
        run(m, fed, model, rounds=6, seed=0)
        for m in (FedAvg(train, 0.5), DCFL(train, 0.5, recluster="never"))
    )
    b = b[b.metric.isin(a.metric.astype(str).unique())].reset_index(drop=True)
    for column in ("round", "client", "cluster", "value"):
        assert a[column].tolist() == b[column].tolist()


def test_partial_participation_leaves_the_absent_beside_their_old_model():
    """Clients 0 and 2 trade sides, 4 and 5 too; 1 and 3 are absent. They follow the new model that
    is nearest to the
    one they had, not the clients that left."""
    train = Toward(
        torch.tensor([[-2.0, 0.5], [2.0, 0.0], [2.0, 0.5], [-2.0, 0.0], [-2.0, 0.4], [2.0, 0.4]])
    )
    state = State(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), torch.tensor([0, 0, 1, 1, 1, 0]))
    method = DCFL(train, estimator=Stubborn(0.5))
    chosen = torch.tensor([0, 2, 4, 5])
    ends = train(served(state)[chosen], toy_federation(6), chosen, 0, 0)
    new = method.regroup(state, chosen, ends, torch.tensor([0, 1, 0, 1]))
    torch.testing.assert_close(new.models, torch.tensor([[-2.0, 0.45], [2.0, 0.45]]))
    assert new.labels.tolist() == [0, 1, 1, 0, 0, 1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("skew", [False, True])
@pytest.mark.parametrize("groups", [2, 4])
def test_finds_easy_groups(groups, skew, seed):
    fed, model = easy_federation(groups, 5, seed, skew=skew), mlp((1, 4, 4), 4, hidden=(16,))
    record = run(DCFL(LocalSGD(model, lr=0.05, batch=10)), fed, model, rounds=5, seed=seed)
    assert record[record.metric == "ari"].value.tolist() == [1.0] * 5  # from the first round on


def test_the_preference_is_the_quantile_bit_for_bit(monkeypatch):
    asked = []
    monkeypatch.setattr(
        AffinityPropagation,
        "set_params",
        lambda self, **how: asked.append(how["preference"]) or self,
    )
    monkeypatch.setattr(AffinityPropagation, "fit_predict", lambda self, x: np.zeros(len(x)))
    for q in (0.0, 0.3, 0.5, 0.9, 1.0):
        DCFL(Add(OPPOSED), preference=q).cluster(random_distances(), 0)
        assert asked[-1] == float((-random_distances()).double().quantile(q))


def test_newcomers_start_from_the_mean_of_the_clusters_before_they_are_drawn_anew():
    """Alg. 1 l.19 is before l.23-25: the mean of the one old cluster weighs its six clients by
    their samples, that
    of the two new ones does not."""
    fed = toy_federation([1, 1, 1, 1, 1, 5])
    method, state = DCFL(Add(SIX)), State(torch.zeros(1, 2), torch.zeros(6, dtype=torch.long))
    new, info = method.step(state, fed, 0, 0)
    assert info["reclustered"] and len(new.models) == 2
    weights = torch.tensor([1.0, 1, 1, 1, 1, 5]) / 10
    torch.testing.assert_close(method.middle(new), weights @ SIX)
    assert not torch.allclose(method.middle(new), new.models.mean(0))
    assert method.middle(state).equal(torch.zeros(2))  # before the first round


def test_newcomers_train_with_the_rate_of_their_round():
    fed = toy_federation(4)
    seen = []

    class Asked(Add):
        def __call__(self, theta, fed, clients, seed, t):
            seen.append(t)
            return super().__call__(theta, fed, clients, seed, t)

    state = State(torch.zeros(2, 2), torch.tensor([0, 0, 1]))
    DCFL(Asked(OPPOSED)).admit(state, fed, 0, 7)
    assert seen == [7]
