"""FedAC and FedACP: gates and splits worked out by hand, their limits, and the traps of partial
participation.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf, log

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedclust.algorithms import FedAC, FedACP, FedAvg, State
from fedclust.algorithms.base import sample
from fedclust.federation import Federation
from fedclust.metrics import purity
from fedclust.models import Model, mlp
from fedclust.rng import stream
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.toy import Add, Toward, easy_federation, permuted, regrouped

BOTH = FedAC, FedACP
MODEL = mlp((1, 4, 4), 4, hidden=(8,))
TRAIN = LocalSGD(MODEL, lr=0.05, epochs=2, batch=16, momentum=0.9)


def dark(sizes: list[int], tests: int = 2) -> Federation:
    """Black pixels of class 0: the loss depends on the biases alone, log(1 + exp(b1 - b0))."""

    def half(n: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(n, 1, 1, 1), torch.zeros(n, dtype=torch.long)

    halves = {name: [half(tests) for _ in sizes] for name in ("test", "val")}
    halves["train"] = [half(n) for n in sizes]
    return Federation.stack(halves, group=torch.zeros(len(sizes), dtype=torch.long), classes=2).to(
        torch.float64
    )


def steps(*rows: list[float]) -> Add:
    """Trainer whose client i adds rows[i] to the two weights (w0, w1) and, if given, the two
    biases.
    """
    return Add(torch.tensor([row + [0.0] * (4 - len(row)) for row in rows], dtype=torch.float64))


def start(algorithm: FedAC, fed: Federation) -> State:
    return algorithm.init(torch.zeros(4, dtype=torch.float64), fed, 0)


def seed_that_draws(fed: Federation, fraction: float, wanted: list[int]) -> int:
    return next(s for s in range(1000) if sample(fed, fraction, s, 0).tolist() == wanted)


FOUR = steps([1, 0], [0.8, 0.6], [0.6, 0.8], [-0.8, 0.6])


def test_split_by_hand():
    # All four take part, equal sizes: dw = (1.6, 2.0)/4 = (0.4, 0.5). cos(dw_3, dw) = (-0.32 +
    # 0.30)/0.41^0.5 = -0.0312
    # is the smallest: theta < 0. No bias moves: dloss = 0 < alpha. Anchors: cos(0, 3) = -0.8 is the
    # smallest of the
    # pairs (1, 3: -0.28; 2, 3: 0.0). Client 1 has 0.8 to client 0 and -0.28 to 3; client 2 has 0.6
    # and 0: {0 1 2}, {3}.
    fed, algorithm = dark([1] * 4), FedAC(FOUR, fraction=1.0)
    state, info = algorithm.step(start(algorithm, fed), fed, 0, 0)
    assert state.labels.tolist() == [0, 0, 0, 1] and info["splits"] == 1
    torch.testing.assert_close(
        state.models, torch.tensor([[0.4, 0.5, 0, 0]] * 2).double()
    )  # both start from the parent
    torch.testing.assert_close(info["theta"], torch.full((4,), -0.02 / 0.41**0.5))
    assert info["dloss"].tolist() == [0] * 4
    assert (info["down"], info["up"], info["extra"]) == (4, 4, 0)


def test_absent_clients_train_once_more():
    # Clients 0, 1, 3 are drawn: dw = (1.0, 1.2)/3, cos(dw_3, dw) = (-0.8 + 0.72)/|..| < 0. Client 2
    # is asked: it goes
    # to client 0's side (0.6 > 0) and costs a model down, one up and a training, but is not in the
    # mean.
    fed, algorithm = dark([1] * 4), FedAC(FOUR, fraction=0.75)
    seed = seed_that_draws(fed, 0.75, [0, 1, 3])
    state, info = algorithm.step(start(algorithm, fed), fed, seed, 0)
    assert state.labels.tolist() == [0, 0, 0, 1]
    torch.testing.assert_close(state.models[0], torch.tensor([1 / 3, 0.4, 0, 0]).double())
    assert (info["down"], info["up"], info["extra"], info["bytes"]) == (4, 4, 1, 8 * 4 * 8)
    assert info["trained"].tolist() == [1] * 4


def test_the_partial_variant_asks_nobody_and_places_later():
    # As before, but client 2 stays where it is. Sides: mean of (1, 0), (0.8, 0.6) = (0.9, 0.3), and
    # (-0.8, 0.6).
    fed, algorithm = dark([1] * 4), FedACP(FOUR, fraction=0.75)
    seed = seed_that_draws(fed, 0.75, [0, 1, 3])
    state, info = algorithm.step(start(algorithm, fed), fed, seed, 0)
    assert state.labels.tolist() == [0, 0, 0, 1]
    assert (info["extra"], info["down"], info["trained"].tolist()) == (0, 3, [1, 1, 0, 1])
    torch.testing.assert_close(
        state.memory["directions"][0, :, :2], torch.tensor([[0.9, 0.3], [-0.8, 0.6]]).double()
    )
    assert state.memory["seen"].tolist() == [1, 1, 0, 1]
    # Next time it is drawn, in a world where it pulls the other way, (-1, 0): cosines -0.95 and
    # 0.8, so it moves. Its
    # return is in no mean: cluster 0 moves by the mean of its settled participants only.
    pulls = replace(algorithm, train=steps([0.1, 0], [0.1, 0], [-1, 0], [0, 0.1]), fraction=1.0)
    moved, info = pulls.step(state, fed, seed, 1)
    assert moved.labels.tolist() == [0, 0, 1, 1] and moved.memory["seen"].tolist() == [1] * 4
    torch.testing.assert_close(
        moved.models - state.models, torch.tensor([[0.1, 0, 0, 0], [0, 0.1, 0, 0]]).double()
    )
    assert (info["down"], info["up"], info["trained"].tolist()) == (4, 4, [1] * 4)


def test_no_stale_comparison():
    # Toward pulls to a target, so an update depends on where it starts. Client 1 missed the split
    # of the model at 0; by
    # now its cluster stands at (10, 0). Its target (3, 1) lies towards side 0, (1, 0), as seen from
    # the split, but seen
    # from (10, 0) its update (-7, 1) would point to side 1, (-1, 0). It must train from the split's
    # model and stay.
    fed = dark([1] * 2)
    train = Toward(torch.tensor([[10.0, 0, 0, 0], [3, 1, 0, 0]]).double())
    algorithm = FedACP(train, fraction=1.0)
    fresh = start(algorithm, fed)
    sides = torch.tensor([[[1.0, 0, 0, 0], [-1, 0, 0, 0]]]).double()
    memory = {
        "parent": torch.tensor([0]),
        "origin": fresh.models,
        "directions": sides,
        "seen": torch.tensor([1, 0]),
    }
    late = State(
        torch.tensor([[10.0, 0, 0, 0], [-10, 0, 0, 0]]).double(), torch.tensor([0, 0]), memory
    )
    state, _ = algorithm.step(late, fed, 0, 5)
    assert state.labels.tolist() == [0, 0] and state.memory["seen"].tolist() == [1, 1]
    assert state.models.equal(late.models)  # client 1 was in no mean, client 0 was at its target


def test_two_missed_splits_take_two_participations():
    # Cluster 0 split along x (new: 1), then cluster 1 along y (new: 2). Client 0 missed both and
    # pulls to (-1, -1):
    # first it goes to side -x, cluster 1, and only the next time to side -y of that one, cluster 2.
    # Client 1, which
    # stays in cluster 0, is not concerned by the second split.
    fed, algorithm = dark([1] * 2), FedACP(steps([-1, -1], [1, 0]), fraction=1.0)
    sides = torch.tensor([[[1.0, 0, 0, 0], [-1, 0, 0, 0]], [[0, 1, 0, 0], [0, -1, 0, 0]]]).double()
    memory = {
        "parent": torch.tensor([0, 1]),
        "origin": torch.zeros(2, 4).double(),
        "directions": sides,
    }
    memory["seen"] = torch.tensor([0, 0])
    state = State(torch.zeros(3, 4).double(), torch.tensor([0, 0]), memory)
    first, _ = algorithm.step(state, fed, 0, 0)
    second, _ = algorithm.step(first, fed, 0, 1)
    assert first.labels.tolist() == [1, 0] and second.labels.tolist() == [2, 0]
    assert (
        second.models[0, 0] == 1 and second.models[1:].abs().sum() == 0
    )  # client 1 is averaged the second time


def test_loss_gate_by_hand():
    # All biases go to (log 3, 0): the loss of class 0 falls from log 2 to log(4/3), by log 1.5 =
    # 0.405. Four clients
    # with 20 test images are 80 = 2.5 batches of 32, counted as 3: the sum changes by 1.216. With
    # alpha = 1 the mean
    # passes the gate and the sum does not.
    train = Add(FOUR.steps + torch.tensor([0, 0, log(3), 0], dtype=torch.float64))
    fed = dark([1] * 4, tests=20)
    for loss, change, splits in (("mean", log(1.5), 1), ("sum", 3 * log(1.5), 0)):
        algorithm = FedAC(train, fraction=1.0, alpha=1.0, beta=1.0, loss=loss)
        _, info = algorithm.step(start(algorithm, fed), fed, 0, 0)
        torch.testing.assert_close(info["dloss"], torch.full((4,), change), rtol=1e-6, atol=0)
        assert info["splits"] == splits


@pytest.mark.parametrize(("share", "of", "cosine", "fires"), [
    # an even draw: both have a cosine of sin(half the angle) > 0 to their mean
    (1, 2, -0.99, False),
    (1, 4, -0.32, False),  # c > -p/(1 - p) = -1/3
    (1, 4, -0.35, True),
    (2, 5, -0.65, False),  # -2/3
    (2, 5, -0.68, True),
])  # fmt: skip
def test_when_the_printed_angle_can_fire(share: int, of: int, cosine: float, fires: bool):
    # Two groups of equal updates u, v of length 1, minority share p: <v, dw> = (1 - p) c + p < 0
    # iff c < -p/(1 - p).
    u, v = [1.0, 0], [cosine, (1 - cosine**2) ** 0.5]
    fed, train = dark([1] * of), steps(*[v] * share, *[u] * (of - share))
    for reading, expected in (("aggregate", fires), ("pairwise", True)):
        algorithm = FedAC(train, fraction=1.0, reading=reading)
        _, info = algorithm.step(start(algorithm, fed), fed, 0, 0)
        assert info["splits"] == expected


def test_a_sample_of_two_of_a_mixed_cluster_never_splits():
    fed, algorithm = dark([1] * 25), FedAC(steps(*[[1, 0]] * 12, *[[-1, 0.01]] * 13), fraction=0.1)
    assert all(
        not algorithm.step(start(algorithm, fed), fed, 0, t)[1]["splits"] for t in range(100)
    )


def test_clients_keep_their_clusters_through_several_splits():
    # Three directions in the plane, 3, 1 and 4 clients. First 0 splits from 1 and 2 (cosines -0.53,
    # -0.49, and -0.48
    # between 1 and 2), then client 2 alone from the four of direction 2: -0.48 < -p/(1 - p) = -1/4.
    which = torch.tensor([2, 0, 1, 2, 2, 0, 0, 2])
    directions = torch.tensor([[1, 0, 0, 0], [-0.5, 0.8, 0, 0], [-0.5, -0.9, 0, 0]]).double()
    fed, algorithm = dark([1] * 8), FedAC(Add(directions[which]), fraction=1.0)
    state = start(algorithm, fed)
    for t in range(4):
        state, _ = algorithm.step(state, fed, 0, t)
    assert len(state.models) == 3 and purity(state.labels, which) == 1
    before = state.models.clone()
    state, _ = algorithm.step(state, fed, 0, 4)
    torch.testing.assert_close((state.models - before)[state.labels], directions[which])


def test_equal_updates_leave_no_empty_cluster():
    # beta above 1 opens the gate to equal updates: the anchors do not differ, everybody would go to
    # one side
    for method in BOTH:
        fed, algorithm = (
            dark([1, 3, 1]),
            method(steps([1, 0], [1, 0], [1, 0]), fraction=0.7, beta=2.0),
        )
        state, info = algorithm.step(start(algorithm, fed), fed, 0, 0)
        assert info["splits"] == 0 and state.labels.tolist() == [0, 0, 0] and len(state.models) == 1


def test_the_gate_reads_the_validation_half_alone():
    """The bias of class 1 grows: validation samples of class 0 lose log((1 + e) / 2), the test's
    gain.
    """
    fed = dark([1] * 4)
    algorithm = FedAC(steps(*[[0, 0, 0, 1]] * 4), fraction=1.0, loss="mean")
    for name in ("y_test", "x_test", "mask_test"):  # nothing of the test half matters
        fed = replace(fed, **{name: torch.ones_like(getattr(fed, name))})
    _, info = algorithm.step(start(algorithm, fed), fed, 0, 0)
    assert info["dloss"].tolist() == pytest.approx([log((1 + np.e) / 2)] * 4)
    without = replace(fed, x_val=None, y_val=None, mask_val=None)
    with pytest.warns(UserWarning, match="test half .* ask the partitioner for a validation half"):
        _, info = algorithm.step(start(algorithm, without), without, 0, 0)
    assert info["dloss"].tolist() == pytest.approx([log(2 / (1 + 1 / np.e))] * 4)


def test_settings_are_checked():
    for wrong in ({"loss": "median"}, {"reading": "printed"}):
        with pytest.raises(ValueError, match="must be one of"):
            FedAC(FOUR, **wrong)


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.BatchNorm1d(4))


def test_evaluation_uses_running_statistics_and_leaves_them():
    model, fed = Model(build, (1, 4, 4), 4), easy_federation(2, 2, 0, samples=8)
    theta = model.init(0)
    theta[-8:-4], theta[-4:] = 0.3, 4.0
    algorithm = FedAC(Add(torch.zeros(4, model.size), model=model), fraction=1.0)
    state, _ = algorithm.step(algorithm.init(theta, fed, 0), fed, 0, 0)
    assert state.models[0].equal(theta)
    logits = (fed.x_val.flatten(2) @ theta[:64].view(4, 16).T + theta[64:68] - 0.3) / (
        4 + 1e-5
    ) ** 0.5
    by_hand = cross_entropy(logits.mT, fed.y_val, reduction="none").mean(1)
    torch.testing.assert_close(state.memory["loss"], by_hand)


def plain(record: pd.DataFrame, *without: str) -> pd.Series:
    rows = record[~record.metric.isin(without)].astype({"metric": str})
    return rows.set_index(["round", "metric", "client"]).value.sort_index()


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("never", [{"alpha": 0.0}, {"beta": -1.1}, {"alpha": inf, "warmup": 99}])
def test_without_splits_it_is_fedavg(method: type[FedAC], never: dict[str, float]):
    fed, own = easy_federation(2, 5, 0, samples=16), ["splits", "dloss", "theta"]
    record = run(method(TRAIN, fraction=0.5, **never), fed, MODEL, rounds=4, seed=3)
    fedavg = run(FedAvg(TRAIN, fraction=0.5), fed, MODEL, rounds=4, seed=3)
    pd.testing.assert_series_equal(plain(record, *own), plain(fedavg), check_exact=True)


def test_with_everybody_present_partial_is_whole():
    fed, pairs = (
        easy_federation(2, 4, 0, samples=16),
        {"fraction": 1.0, "alpha": inf, "reading": "pairwise"},
    )
    records = [run(method(TRAIN, **pairs), fed, MODEL, rounds=6, seed=0) for method in BOTH]
    assert records[0][records[0].metric == "splits"].value.sum() >= 1
    pd.testing.assert_series_equal(plain(records[0]), plain(records[1]), check_exact=True)


@pytest.mark.parametrize("method", BOTH)
def test_record_ignores_groups_and_order(method: type[FedAC]):
    fed = easy_federation(2, 6, 1, samples=16).to(torch.float64)
    algorithm = method(TRAIN, fraction=0.5, alpha=inf)
    record = run(algorithm, fed, MODEL, rounds=8, seed=1)
    assert record[record.metric == "splits"].value.sum() >= 1
    scores = ["purity", "ari", "nmi"]
    again = run(algorithm, regrouped(fed), MODEL, rounds=8, seed=1)
    pd.testing.assert_series_equal(plain(record, *scores), plain(again, *scores), check_exact=True)
    turned = run(
        algorithm,
        permuted(fed, torch.randperm(12, generator=stream(0, "order"))),
        MODEL,
        rounds=8,
        seed=1,
    )
    np.testing.assert_allclose(plain(record), plain(turned), atol=1e-9)
    same = [
        r[r.metric == "accuracy"].set_index(["round", "client"]).cluster.sort_index()
        for r in (record, turned)
    ]
    assert same[0].equals(same[1])


def test_newcomers_join_the_partial_variant_settled():
    fed, algorithm = (
        dark([1] * 5),
        FedACP(steps([1, 0], [0.8, 0.6], [0.6, 0.8], [-0.8, 0.6], [-1, 0]), fraction=1.0),
    )
    old = fed.take([0, 1, 2, 3])
    state = algorithm.step(start(algorithm, old), old, 0, 0)[0]
    state = algorithm.step(algorithm.step(state, old, 0, 1)[0], old, 0, 2)[0]
    state = algorithm.admit(state, fed, 0, 0)
    assert state.labels.tolist() == [0, 0, 0, 1, 1] and state.memory["seen"].tolist() == [1] * 5
    state, info = algorithm.step(state, fed, 0, 3)
    assert len(state.memory["loss"]) == 5 and not info["dloss"].isnan().any()


def test_a_client_with_one_sample():
    fed = easy_federation(2, 3, 0, samples=8)
    lone = replace(fed, mask=fed.mask & ((torch.arange(8) < 1) | (fed.ids[:, None] > 0)))
    record = run(FedAC(TRAIN, fraction=1.0, alpha=inf), lone, MODEL, rounds=3, seed=0)
    assert not record[record.metric == "accuracy"].value.isna().any()


def final(method: Callable[..., FedAC], groups: int, seed: int, **settings: float) -> pd.Series:
    fed = easy_federation(groups, 20, seed)
    train = LocalSGD(mlp((1, 4, 4), 4, hidden=(16,)), lr=0.05, epochs=5, batch=32, momentum=0.9)
    record = run(
        method(train, fraction=0.25, alpha=inf, **settings),
        fed,
        train.model,
        rounds=30,
        seed=seed,
        eval_every=30,
    )
    return record[record["round"] == 29].groupby("metric", observed=True).value.mean()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", BOTH)
def test_finds_two_groups(method: type[FedAC], seed: int):
    """With the loss gate open. At alpha = 5 one of the five seeds never splits: its loss swings by
    more than that.
    """
    last = final(method, 2, seed)
    assert last["ari"] == 1 and last["accuracy"] > 0.95


@pytest.mark.parametrize("seed", range(2))
def test_finds_four_groups(seed: int):
    """After a warm-up. Groups as far from one anchor as from the other are torn apart, and nothing
    joins them again.
    """
    assert final(FedAC, 4, seed, warmup=10)["ari"] > 0.97
