"""CBCC, ABFA, CAFA: weights worked out by hand, what the clustering finds, and the traps."""

import math
import time

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedclust.algorithms import ABFA, CAFA, CBCC, FedAvg
from fedclust.algorithms.cafa import (
    accuracy_weights,
    best_k,
    cbcc,
    class_frequencies,
    cluster_weights,
    iid,
    shared_accuracy,
)
from fedclust.datasets import load
from fedclust.federation import Federation
from fedclust.models import Model
from fedclust.partition import iid_mix
from fedclust.rng import stream
from fedclust.simulation import run
from tests.algorithms.toy import (
    Add,
    easy_federation,
    permuted,
    regrouped,
    toy_federation,
    toy_model,
)

CLASS = CBCC, ABFA, CAFA


def counted(
    *clients: list[int], val: list[tuple[list[float], list[int]]] | None = None
) -> Federation:
    """Clients with these labels; `val`: their validation pixels and labels."""
    train = [(torch.zeros(len(y), 1, 1, 1), torch.tensor(y)) for y in clients]
    halves = {"train": train, "test": train}
    if val:
        halves["val"] = [
            (torch.tensor(x).view(-1, 1, 1, 1), torch.tensor(y, dtype=torch.long)) for x, y in val
        ]
    return Federation.stack(halves, group=torch.zeros(len(clients), dtype=torch.long), classes=2)


def generated(n_iid: int, n_non: int, seed: int) -> Tensor:
    """Frequencies as in tables 2 and 3: uniform clients, and clients with one or two of ten
    classes.
    """
    draw = np.random.default_rng(seed)
    rows = [draw.multinomial(1000, [0.1] * 10) / 1000 for _ in range(n_iid)]
    for _ in range(n_non):
        classes = draw.choice(10, draw.integers(1, 3), replace=False)
        row = np.zeros(10)
        row[classes] = draw.multinomial(1000, draw.dirichlet([0.5] * len(classes))) / 1000
        rows.append(row)
    return torch.tensor(np.array(rows))


def test_frequencies_by_hand():
    # client 0: labels 0 0 0 1 -> 3/4, 1/4; client 1: one sample of class 1, three of padding -> 0,
    # 1
    fed = counted([0, 0, 0, 1], [1])
    assert class_frequencies(fed).tolist() == [[0.75, 0.25], [0.0, 1.0]]


def test_cbcc_by_hand():
    # 0.50 0.52 0.48 | 0.0 | 1.0 as shares of class 0. With k = 3 the silhouette of each of the
    # three middle clients is
    # close to 1 (a <= 0.04, b >= 0.48) and 0 for singletons; k = 2 must join the middle with an
    # end, k = 4 tears it.
    share = torch.tensor([0.50, 0.0, 0.52, 1.0, 0.48])
    vectors = torch.stack([share, 1 - share], 1)
    k, scores = best_k(vectors)
    assert k == 3 and sorted(scores) == [2, 3, 4]
    # distances are sqrt(2) times those of the shares, which cancels: client 0.50: a = 0.02, b =
    # 0.5; 0.52: a = 0.03,
    # b = 0.48; 0.48: a = 0.03, b = 0.48; singletons 0
    assert scores[3] == pytest.approx((0.48 / 0.5 + 2 * 0.45 / 0.48) / 5)
    labels = cbcc(vectors)
    assert iid(labels).tolist() == [True, False, True, False, True]
    assert cluster_weights(labels).tolist() == pytest.approx(
        [0.6, 0.2, 0.6, 0.2, 0.6]
    )  # Eq. 8: 3/5, 1/5


def test_accuracy_weights_by_hand():
    # Eq. 9: validation sizes 1 and 3. Model 0: (1.0 * 1 + 0.5 * 3)/4 = 0.625; model 1: (0.0 * 1 +
    # 1.0 * 3)/4 = 0.75
    # Eq. 10: 0.625/1.375 = 5/11, 0.75/1.375 = 6/11
    weights = accuracy_weights(torch.tensor([[1.0, 0.5], [0.0, 1.0]]), torch.tensor([1, 3]))
    assert weights.tolist() == pytest.approx([5 / 11, 6 / 11])


def test_one_round_by_hand():
    # The model is logits = (w0 x + b0, w1 x + b1). It starts at 0; client 0 returns (1, -1, 0, 0):
    # class 0 where x > 0,
    # client 1 (-1, 1, 0, 0): class 1 where x > 0, client 2 (0, 0, 1, 0): always class 0.
    steps = torch.tensor([[1.0, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, 0]], dtype=torch.float64)
    # Frequencies, validation included: client 0 (3/4, 1/4), client 1 (1/3, 2/3), client 2 (1, 0):
    # two clusters,
    # {0, 2} and {1}: Eq. 8 weights 2/3, 1/3, 2/3.
    # Validation: client 0: x = 1, 2 of class 0; client 1: x = 1 of class 1; client 2: x = -1 of
    # class 0. 4 samples:
    #   model 0 is right on 2, 0, 0 -> A = 2/4; model 1 on 0, 1, 1 -> 2/4; model 2 on 2, 0, 1 ->
    # 3/4; sum 7/4
    val = [([1.0, 2.0], [0, 0]), ([1.0], [1]), ([-1.0], [0])]
    fed = counted([0, 1], [0, 1], [0, 0], val=val).to(torch.float64)
    train, theta = Add(steps), torch.zeros(4, dtype=torch.float64)
    assert shared_accuracy(train.model, steps, fed).tolist() == [[1, 0, 0], [0, 1, 1], [1, 0, 1]]
    expected = {
        CBCC: torch.tensor([2, 1, 2]) / 5,
        ABFA: torch.tensor([2, 2, 3]) / 7,
        CAFA: torch.tensor([2 * 2, 1 * 2, 2 * 3]) / 12,  # Eq. 11
    }
    for method, weights in expected.items():
        algorithm = method(train, fraction=1.0, **({} if method is ABFA else {"clusters": 2}))
        state, info = algorithm.step(algorithm.init(theta, fed, 0), fed, 0, 0)
        torch.testing.assert_close(state.models[0], weights.double() @ steps)
        sharing = 0 if method is CBCC else 3 * 2  # each model to two others
        assert (info["down"], info["up"], info["bytes"]) == (3 + sharing, 3, (6 + sharing) * 4 * 8)


def one_round(algorithm: FedAvg, fed: Federation) -> Tensor:
    theta = torch.zeros(4, dtype=torch.float64)
    return algorithm.step(algorithm.init(theta, fed, 0), fed, 0, 0)[0].models


def test_equal_weights_are_the_plain_mean():
    # one cluster, and models that are all equally good: the unweighted mean of sizes 1, 2, 5, which
    # FedAvg's is not
    fed = toy_federation([1, 2, 5]).to(torch.float64)
    any_ = Add(torch.eye(3, 4, dtype=torch.float64))
    equal = Add(
        torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1], [2, 2, 2, 2]], dtype=torch.float64)
    )  # ties are class 0
    assert not torch.allclose(
        one_round(FedAvg(any_), fed), one_round(FedAvg(any_, weighted=False), fed)
    )
    for algorithm in (CBCC(any_, 1.0, clusters=1), ABFA(equal, 1.0), CAFA(equal, 1.0, clusters=1)):
        plain = one_round(FedAvg(algorithm.train, weighted=False), fed)
        torch.testing.assert_close(one_round(algorithm, fed), plain, rtol=0, atol=1e-15)


def test_nobody_is_right():
    # two models that call everything class 0, validation samples all of class 1: A = 0 and 0, so
    # each weighs a half
    weights = accuracy_weights(torch.zeros(2, 2), torch.tensor([3, 1]))
    assert weights.tolist() == [0.5, 0.5]
    fed = counted([0], [0, 1], val=[([1.0], [1]), ([1.0], [1])])
    train = Add(torch.tensor([[0.0, 0, 1, 0], [0, 0, 3, 0]]))
    algorithm = ABFA(train, 1.0)
    state, _ = algorithm.step(algorithm.init(torch.zeros(4), fed, 0), fed, 0, 0)
    assert state.models.tolist() == [[0, 0, 2, 0]]


def test_a_client_without_validation_samples_judges_nobody():
    # accuracy on no samples is nan and must not spread: client 1 has none, client 0 decides alone
    fed = counted([0], [1], val=[([1.0], [0]), ([], [])])
    accuracy = shared_accuracy(toy_model(), torch.tensor([[1.0, -1, 0, 0], [-1, 1, 0, 0]]), fed)
    assert accuracy[:, 0].tolist() == [1, 0] and accuracy[:, 1].isnan().all()
    assert accuracy_weights(accuracy, fed.mask_val.sum(1)).tolist() == [1, 0]


def test_validation_is_required():
    fed = counted([0, 1], [1, 0])
    algorithm = ABFA(Add(torch.zeros(2, 4)), 1.0)
    with pytest.raises(ValueError, match=r"validation=0\.2"):
        algorithm.step(algorithm.init(torch.zeros(4), fed, 0), fed, 0, 0)


def test_number_of_clusters():
    fed = toy_federation(3)
    with pytest.raises(ValueError, match="clusters=4"):
        CBCC(Add(torch.zeros(3, 4)), clusters=4).init(torch.zeros(4), fed, 0)
    alike = torch.full((5, 10), 0.1)
    assert best_k(alike) == (1, {}) and cbcc(alike).tolist() == cbcc(alike, 3).tolist() == [0] * 5
    assert cbcc(torch.eye(2)).tolist() == [0, 0]  # 2 clients: no k from 2 to n - 1


@pytest.mark.parametrize(
    ("n_iid", "n_non", "seed"), [(10, 30, s) for s in range(5)] + [(30, 30, 0)]
)
def test_finds_the_iid_clients_in_time(n_iid: int, n_non: int, seed: int):
    start = time.process_time()
    found = iid(cbcc(generated(n_iid, n_non, seed), seed=seed))
    assert found[:n_iid].all() and found[n_iid:].sum() == 0
    assert time.process_time() - start < 3  # a third of that on an idle machine


def test_the_order_of_clients_does_not_matter():
    vectors = generated(8, 12, 0)
    order = torch.randperm(20, generator=stream(0, "order"))
    assert cbcc(vectors, seed=3)[order].tolist() == cbcc(vectors[order], seed=3).tolist()
    assert best_k(vectors, 3) == best_k(vectors[order], 3)


@pytest.mark.parametrize("method", CLASS)
def test_record_ignores_groups_and_order(method: type[FedAvg]):
    fed = easy_federation(2, 4, 0, samples=12).to(torch.float64)
    model = Model(build, (1, 4, 4), 4)
    steps = torch.randn(8, model.size, generator=stream(0, "steps"), dtype=torch.float64)
    algorithm = method(Add(steps, model=model), fraction=0.5)
    record = run(algorithm, fed, model, rounds=3, seed=1)
    again = run(algorithm, regrouped(fed), model, rounds=3, seed=1)
    scores = ["purity", "ari", "nmi"]
    one, two = (r[~r.metric.isin(scores)].drop(columns="group") for r in (record, again))
    assert one.equals(two)
    order = torch.tensor([3, 1, 7, 0, 2, 6, 5, 4])
    turned = run(algorithm, permuted(fed, order), model, rounds=3, seed=1)
    key = ["round", "metric", "client"]
    one, two = (
        r.astype({"metric": str}).set_index(key).value.sort_index() for r in (record, turned)
    )
    np.testing.assert_allclose(one, two, atol=1e-12)


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.BatchNorm1d(4))


def test_batch_norm_statistics_are_averaged_and_evaluation_leaves_them():
    # The row ends with running mean and variance. Evaluating shared models must use those, not the
    # statistics of the
    # validation batch, and change nothing: variance 4 and mean 0 halve the logits and move no
    # argmax, while the
    # statistics of a batch of equal images would map everything to the bias.
    model = Model(build, (1, 4, 4), 4)
    fed = easy_federation(2, 2, 0, samples=8)
    theta = torch.stack([model.init(0, k) for k in range(4)])
    theta[:, -4:] = 4.0
    before = theta.clone()
    half = shared_accuracy(model, theta, fed)
    theta[:, -4:] = 1.0
    torch.testing.assert_close(half, shared_accuracy(model, theta, fed))
    assert (half > 0.25).any()
    theta[:, -4:] = 4.0
    assert theta.equal(before)
    steps = torch.zeros(4, model.size)
    steps[:, -8:] = torch.arange(4.0)[:, None]
    algorithm = CBCC(Add(steps, model=model), fraction=1.0, clusters=1)
    state, _ = algorithm.step(algorithm.init(model.init(0), fed, 0), fed, 0, 0)
    assert (
        state.models[0, -8:].tolist() == [1.5] * 4 + [2.5] * 4
    )  # mean of 0 1 2 3, on top of 0 and 1


def test_newcomers_are_clustered():
    fed = counted([0, 0], [0, 0], [1, 1], [1, 1])
    algorithm = CBCC(Add(torch.zeros(4, 4)), 1.0)
    state = algorithm.init(torch.zeros(4), fed.take([0, 1, 2]), 0)
    assert len(state.memory["cluster"]) == 3
    state = algorithm.admit(state, fed, 0, 0)
    a, b, c, d = state.memory["cluster"].tolist()
    assert a == b != c == d and state.labels.tolist() == [0] * 4


def test_a_client_with_one_sample():
    fed = counted([0, 1, 0, 1], [1])
    algorithm = CBCC(Add(torch.ones(2, 4)), 1.0, clusters=2)
    state, _ = algorithm.step(algorithm.init(torch.zeros(4), fed, 0), fed, 0, 0)
    assert all(math.isclose(v, 1.0, rel_tol=1e-6) for v in state.models[0].tolist())


def test_frequencies_count_the_validation_samples_as_well():
    data = load("glyphs", n=300, n_test=50)
    kept, whole = (iid_mix(data, 2, 6, validation=share, seed=3) for share in (0.4, 0.0))
    torch.testing.assert_close(class_frequencies(kept), class_frequencies(whole))
