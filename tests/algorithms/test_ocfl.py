from dataclasses import replace

import pytest
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AffinityPropagation, KMeans
from sklearn.metrics import adjusted_rand_score

from fedclust.algorithms import OCFL, FedAvg
from fedclust.algorithms.ocfl import cluster_parameters, merge_clusters
from fedclust.models import mlp
from fedclust.rng import stream
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.toy import Add, Toward, easy_federation, toy_federation, toy_model

START = torch.tensor([1.0, 1.0])
# as seen from (1, 1): two go right, two go up, one goes far from both
TARGETS = torch.tensor([[5.0, 1.0], [5.2, 1.0], [1.0, 5.0], [1.0, 5.2], [-9.0, -9.0]])


class Says(ClusterMixin, BaseEstimator):
    """Finds what it is told."""

    def __init__(self, labels=()):
        self.labels = labels

    def fit_predict(self, x, y=None):
        return torch.tensor(self.labels[: len(x)]).numpy()


FOUND = Says((0, 0, 1, 1, -1))


def test_noise_is_a_cluster_each():
    assert cluster_parameters(torch.zeros(5, 2), Says((-1, 4, 4, -1, 1))).tolist() == [
        2,
        1,
        1,
        3,
        0,
    ]
    assert cluster_parameters(torch.zeros(3, 2), Says((-1, -1, -1))).tolist() == [0, 1, 2]


def test_a_run_by_hand():
    """Everyone trains alone from (1, 1) and lands on its target; the clusters start again from (1,
    1). Half way there,
    weights 1 : 3 in the first cluster: 1/4 (3, 1) + 3/4 (3.1, 1)."""
    fed = toy_federation([1, 3, 2, 2, 5])
    method = OCFL(Toward(TARGETS, 0.5), 1.0, pretrain=Toward(TARGETS), estimator=FOUND)
    state = method.init(START, fed, 0)
    assert state.labels.tolist() == [0, 0, 1, 1, 2] and state.models.equal(START.repeat(3, 1))
    state, info = method.step(state, fed, 0, 0)
    torch.testing.assert_close(
        state.models, torch.tensor([[3.075, 1.0], [1.0, 3.05], [-4.0, -4.0]])
    )
    assert (info["found"], info["noise"]) == (3, 1)


def test_the_training_alone_is_paid_in_the_first_round():
    """10 clients in clusters of 5, 4, 1; a tenth of each is one client: 3 trainings a round, 10
    before.
    """
    fed = toy_federation(10)
    method = OCFL(Add(torch.zeros(10, 2)), 0.1, estimator=Says((0,) * 5 + (1,) * 4 + (2,)))
    state, first = method.step(method.init(START, fed, 0), fed, 0, 0)
    _, second = method.step(state, fed, 0, 1)
    assert [first[k] for k in ("down", "up", "extra", "bytes")] == [13, 13, 10, 26 * 2 * 4]
    assert [second[k] for k in ("down", "up", "extra", "bytes")] == [3, 3, 0, 6 * 2 * 4]
    assert (
        first["trained"].sum() == 13
        and first["trained"].min() == 1
        and second["trained"].sum() == 3
    )
    assert "found" not in second


def test_every_cluster_samples_its_own_share():
    fed = toy_federation(10)
    method = OCFL(Add(torch.zeros(10, 2)), 0.5, estimator=Says((0,) * 6 + (1,) * 3 + (2,)))
    state = method.init(START, fed, 0)
    for t in range(3):
        assert state.labels[method.choose(state, fed, 0, t)].bincount().tolist() == [
            3,
            1,
            1,
        ]  # max(int(frac N), 1)


def test_merge_by_average_linkage_by_hand():
    """Mean updates at 0, 40, 84 and 130 degrees (1 - cos: 0-40 .23, 40-84 .28, 84-130 .31). After
    0-40, the average
    from there to 84 is (.90 + .28) / 2 = .59 > .31: {0, 40}, {84, 130}; single linkage would chain
    the first three.
    Down to one it is everyone; four are four."""
    angles = torch.tensor([0.0, 40.0, 84.0, 130.0]).deg2rad()
    means = torch.stack([angles.cos(), angles.sin()], 1)
    vectors = torch.cat(
        [means * 2, means * 4]
    )  # two clients per cluster, their mean 3 times the direction
    labels = torch.arange(4).repeat(2)
    two = merge_clusters(vectors, labels, 2)
    assert two[0] == two[1] != two[2] and two[2] == two[3] and two[:4].equal(two[4:])
    assert merge_clusters(vectors, labels, 1).tolist() == [0] * 8
    assert merge_clusters(vectors, labels, 4).equal(labels) and merge_clusters(
        vectors, labels, 9
    ).equal(labels)


def test_merge_on_updates_or_on_parameters():
    """From (10, 10): updates (1, .2) and (.2, 1) share a quadrant, (-1, -2) points away. As
    parameters, (11, 10.2) and
    (10.2, 11) lie on both sides of the diagonal and (9, 8) falls to the first: 45 + {-2.2, 2.2,
    -3.4} degrees."""
    targets = 10 + torch.tensor([[1.0, 0.2], [0.2, 1.0], [-1.0, -2.0]])
    method = OCFL(Toward(targets), estimator=Says((0, 1, 2)), merge=2)
    init = torch.full((2,), 10.0)
    labels = method.init(init, toy_federation(3), 0).labels
    assert labels[0] == labels[1] != labels[2]
    labels = replace(method, merge_on="parameters").init(init, toy_federation(3), 0).labels
    assert labels[0] == labels[2] != labels[1]


def test_merged_into_one_is_fedavg_exactly():
    fed, model = toy_federation([1, 2, 3, 4, 5]), toy_model()
    train = Toward(torch.randn(5, 4), 0.7)
    a, b = (
        run(m, fed, model, rounds=6, seed=0)
        for m in (FedAvg(train, 0.5), OCFL(train, 0.5, merge=1))
    )
    for metric in ("accuracy", "loss", "clusters"):
        assert a[a.metric == metric].value.tolist() == b[b.metric == metric].value.tolist()
    later = [r[(r.metric == "trained") & (r["round"] > 0)].value.tolist() for r in (a, b)]
    assert later[0] == later[1]


def test_order_of_the_clients_does_not_matter_to_optics():
    """Points of one blob: OPTICS breaks ties and starts by position, here by name."""
    targets = torch.randn(20, 4, generator=stream(0, "blob"))
    fed, order = toy_federation(20), torch.randperm(20, generator=stream(0, "order"))
    method = OCFL(Toward(targets))
    a, b = (method.init(torch.zeros(4), f, 0).labels for f in (fed, fed.take(order)))
    assert a[order].equal(b)


def test_one_client_and_equal_clients(recwarn):
    assert cluster_parameters(torch.zeros(1, 3), OPTICS(min_samples=2)).tolist() == [0]
    method = OCFL(Add(torch.ones(4, 2)), 1.0, estimator=OPTICS(min_samples=2, xi=0.1))
    state = method.init(START, toy_federation(4), 0)
    assert state.labels.tolist() == [0, 0, 0, 0] and not recwarn.list


@pytest.mark.parametrize(
    "estimator",
    [
        KMeans(3, n_init=3, random_state=0),
        DBSCAN(eps=2, min_samples=2),
        HDBSCAN(min_cluster_size=3, copy=True),
        AffinityPropagation(random_state=0),
        OPTICS(min_samples=2, xi=0.5),
    ],
    ids=lambda e: type(e).__name__,
)
def test_any_clusterer_of_scikit_learn(estimator):
    group = torch.arange(18) % 3
    centres = 20 * torch.eye(3, 30)
    theta = centres[group] + 0.1 * torch.randn(18, 30, generator=stream(0, "three"))
    assert adjusted_rand_score(group, cluster_parameters(theta, estimator)) == 1
    assert not hasattr(estimator, "labels_")  # cloned, not fitted


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"merge_on": "labels"}, "merge_on='labels': must be one of 'updates'"),
        ({"merge": 0}, "merge=0: must be a whole number"),
    ],
)
def test_settings_say_what_is_allowed(wrong, says):
    with pytest.raises(ValueError, match=says):
        OCFL(Add(TARGETS), **wrong)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("how", ["xi 0.4", "xi 0.1, merged"])
def test_finds_groups_with_labels_of_their_own(how, groups, seed):
    """xi is a relative step of the reachability: at 0.1 the ripples among the five clients of a
    group are steps too,
    and OPTICS alone cuts groups up (ARI 0.8 to 1 here); it never mixes them, so the merge finds
    them."""
    fed, model = easy_federation(groups, 5, seed, skew=True), mlp((1, 4, 4), 4, hidden=(16,))
    settings = (
        {"estimator": OPTICS(min_samples=2, xi=0.4)} if how == "xi 0.4" else {"merge": groups}
    )
    method = OCFL(LocalSGD(model, lr=0.05, batch=10), 0.5, **settings)
    record = run(method, fed, model, rounds=3, seed=seed, eval_every=3)
    assert record[record.metric == "ari"].value.iloc[-1] == 1
