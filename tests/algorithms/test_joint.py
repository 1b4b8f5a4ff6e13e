"""Joint: choices and steps worked out by hand, the loop they stand for, their limits and
traps."""

from dataclasses import replace
from math import log

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedclust import fast
from fedclust.algorithms import IFCA, FedAvg, Joint, State
from fedclust.algorithms.joint import Seen
from fedclust.federation import Federation
from fedclust.metrics import purity
from fedclust.models import Model, cnn, mlp
from fedclust.privacy import DPSGD, UpdateNoise
from fedclust.rng import stream
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.toy import easy_federation, permuted, regrouped, toy_model

MODEL = mlp((1, 4, 4), 4, hidden=(8,))
TRAIN = LocalSGD(MODEL, lr=0.1, batch=16)
PIXEL = LocalSGD(toy_model(), lr=1.0, batch=8)


def pixels(*clients: tuple[list[float], list[int]]) -> Federation:
    """Clients with these values of their one pixel and these labels."""
    data = [(torch.tensor(x).view(-1, 1, 1, 1), torch.tensor(y)) for x, y in clients]
    group = torch.zeros(len(clients), dtype=torch.long)
    return Federation.stack({"train": data, "test": data}, group=group, classes=2).to(torch.float64)


def loop(
    model: Model, rows: Tensor, directions: Tensor, x: Tensor, y: Tensor, mask: Tensor
) -> tuple[Tensor, ...]:
    """A forward and a backward pass for each model and client."""
    out = torch.empty(3, len(x), len(rows), dtype=rows.dtype)
    for k, row in enumerate(rows):
        net = model.module(row)
        for i in range(len(x)):
            loss = cross_entropy(net(x[i][mask[i]].to(rows)), y[i][mask[i]])
            gradient = torch.cat(
                [g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))]
            )
            out[:, i, k] = torch.stack([loss.detach(), gradient @ directions[k], gradient.norm()])
    return tuple(out)


def choose(algorithm: Joint, *seen: Tensor, dw: Tensor, count: Tensor) -> list[int]:
    return algorithm.score(Seen(*seen, None), dw, count).argmax(1).tolist()


def test_gradient_decides_by_hand():
    # Both models are 0: logits 0, p = 1/2, loss log 2, so the losses tie. Device 0, x = 1 of class
    # 0: dz = p - onehot = (-1/2, 1/2), gradient (weights dz x, biases dz) = (-1/2, 1/2, -1/2, 1/2).
    # Last updates: model 0 by (1, -1, 0, 0), model 1 by (-1, 1, 0, 0). cos(-g, dw) = (1/2 + 1/2)/(1
    # sqrt 2) = 0.71 for model 0, -0.71 for 1: it picks model 0. Device 1, x = -1: its gradient is
    # (1/2, -1/2, -1/2, 1/2), so it picks model 1. As printed it is the other way round. Each steps
    # from its model by lr 1: to (1/2, -1/2, 1/2, -1/2) and to (-1/2, 1/2, 1/2, -1/2).
    fed = pixels(([1.0], [0]), ([-1.0], [0]))
    zero, dw = torch.zeros(2, 4).double(), torch.tensor([[1, -1, 0, 0], [-1, 1, 0, 0]]).double()
    state = State(zero, torch.zeros(2, dtype=torch.long), {"previous": -dw})
    ends = torch.tensor([[0.5, -0.5, 0.5, -0.5], [-0.5, 0.5, 0.5, -0.5]]).double()
    for sign, picks in (("descent", [0, 1]), ("printed", [1, 0])):
        new, info = Joint(PIXEL, k=2, sign=sign).step(state, fed, 0, 1)
        assert new.labels.tolist() == picks and info["empty"] == 0
        torch.testing.assert_close(new.models[new.labels], ends)
        assert info["train_loss"] == pytest.approx(log(2))
        assert new.memory["previous"].equal(zero)  # the next dw is this round's move
        assert (info["down"], info["up"], info["bytes"], info["trained"].tolist()) == (
            4,
            2,
            6 * 4 * 8,
            [1, 1],
        )


def test_mean_of_a_cluster_is_unweighted_by_hand():
    # One model at 0. Device 0: one sample x = 1 of class 0, step (1/2, -1/2, 1/2, -1/2). Device 1:
    # two samples, x = -1 of class 0 and x = -1 of class 1: mean step 0. The mean of two devices,
    # not of three samples: half of the first.
    fed = pixels(([1.0], [0]), ([-1.0, -1.0], [0, 1]))
    algorithm = Joint(PIXEL, k=1)
    state, _ = algorithm.step(algorithm.init(torch.zeros(4).double(), fed, 0), fed, 0, 0)
    torch.testing.assert_close(state.models, torch.tensor([[0.25, -0.25, 0.25, -0.25]]).double())


def test_where_lambda_tips_the_balance():
    # L = 0.7, 0.6; S = 0.5, -0.5 (|g| = |dw| = 1, <g, dw> = -0.5, 0.5). Model 0 wins iff lambda >
    # (1 - lambda) 0.1, which is lambda > 1/11. With sums over 4 samples the losses differ by 0.4:
    # lambda > 2/7. Euclidean: -|-g - dw| = -sqrt(2 - 1) = -1 and -sqrt(2 + 1) = -1.73: lambda 0.73
    # > (1 - lambda) 0.1: lambda > 0.12.
    seen = torch.tensor([[0.7, 0.6]]), torch.tensor([[-0.5, 0.5]]), torch.ones(1, 2)
    rest = {"dw": torch.eye(2), "count": torch.tensor([[4]])}
    for settings, low, high in (
        ({}, 0.08, 0.10),
        ({"loss": "sum"}, 0.27, 0.30),
        ({"similarity": "euclidean"}, 0.11, 0.13),
    ):
        assert choose(Joint(TRAIN, lam=low, **settings), *seen, **rest) == [1]
        assert choose(Joint(TRAIN, lam=high, **settings), *seen, **rest) == [0]
    assert choose(Joint(TRAIN, lam=1.0, sign="printed"), *seen, **rest) == [1]


def test_a_model_that_did_not_move_has_no_direction():
    # dw = 0: the cosine is 0, not nan
    seen = Seen(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1), None)
    score = Joint(TRAIN, lam=0.5).score(seen, torch.zeros(1, 2), 1)
    assert score.tolist() == [[0]]


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_the_first_round_goes_by_the_loss(similarity: str):
    fed = easy_federation(2, 4, 0)
    first = [
        algorithm.step(algorithm.init(MODEL.init(0), fed, 0), fed, 0, 0)[0]
        for algorithm in (
            Joint(TRAIN, k=3, lam=0.9, similarity=similarity),
            Joint(TRAIN, k=3, lam=0.0),
        )
    ]
    assert first[0].labels.equal(first[1].labels) and first[0].models.equal(first[1].models)


@pytest.mark.parametrize(
    "model", [MODEL, cnn((1, 4, 4), 4, channels=(3,), kernel=3, hidden=(5,))], ids=["mlp", "cnn"]
)
def test_choices_are_those_of_the_loop(model: Model):
    fed = easy_federation(2, 4, 0, samples=13).to(torch.float64)
    mask = fed.mask & (torch.arange(13) < 1 + fed.ids[:, None])  # 1 to 8 samples
    rows = torch.stack([model.init(0, k) for k in range(3)]).double()
    directions = torch.randn(rows.shape, generator=stream(0, "directions"), dtype=torch.float64)
    slow = loop(model, rows, directions, fed.x, fed.y, mask)
    batch, count = (fed.x, fed.y, mask), mask.sum(1, keepdim=True)
    for settings in ({}, {"similarity": "euclidean"}, {"sign": "printed", "loss": "sum"}):
        algorithm = Joint(LocalSGD(model, lr=0.1, batch=16), k=3, lam=0.5, **settings)
        seen = algorithm.look(rows, directions, batch)
        for ours, expected in zip(seen[:3], slow, strict=True):
            torch.testing.assert_close(ours, expected)
        quick = fast.choose(algorithm, rows, directions, batch)
        labels = [
            algorithm.score(each, directions, count).argmax(1)
            for each in (seen, quick, Seen(*slow, None))
        ]
        assert torch.equal(labels[0], labels[2]) and torch.equal(labels[1], labels[2])
        torch.testing.assert_close(quick.update(labels[2], 0.3), seen.update(labels[2], 0.3))


def plain(record: pd.DataFrame, *without: str) -> pd.Series:
    rows = record[~record.metric.isin(without)].astype({"metric": str})
    return rows.set_index(["round", "metric", "client"]).value.sort_index()


def test_lambda_zero_is_ifca_with_one_step_from_the_batch_it_chooses_on():
    fed = easy_federation(2, 4, 0).to(torch.float64)
    one = replace(TRAIN, steps=1)
    ifca, joint = IFCA(one, k=3, chosen_on="batch"), Joint(TRAIN, k=3, lam=0.0, rescue=False)
    states = [method.init(MODEL.init(0).double(), fed, 0) for method in (ifca, joint)]
    for t in range(5):
        (mine, about), (theirs, told) = (
            method.step(state, fed, 0, t)
            for method, state in zip((ifca, joint), states, strict=True)
        )
        assert mine.labels.equal(theirs.labels)
        torch.testing.assert_close(mine.models, theirs.models, rtol=0, atol=1e-12)
        assert about["train_loss"] == pytest.approx(told["train_loss"], abs=1e-6)
        assert all(about[name] == told[name] for name in ("down", "up", "bytes", "empty"))
        states = [mine, theirs]


def test_one_cluster_is_fedavg():
    fed = easy_federation(2, 4, 0, samples=20).to(torch.float64)
    own = ["train_loss", "empty"]
    fedavg = run(
        FedAvg(LocalSGD(MODEL, lr=0.1, batch=16, steps=1, decay=0.9), weighted=False),
        fed,
        MODEL,
        rounds=6,
        seed=0,
    )
    joint = run(
        Joint(LocalSGD(MODEL, lr=0.1, batch=16, decay=0.9), k=1), fed, MODEL, rounds=6, seed=0
    )
    np.testing.assert_allclose(
        plain(joint, *own), plain(fedavg), rtol=1e-6
    )  # scores are single precision
    states = []
    for algorithm in (
        FedAvg(LocalSGD(MODEL, lr=0.1, batch=16, steps=1)),
        Joint(TRAIN, k=1),
    ):  # equal sizes
        state = algorithm.init(MODEL.init(0).double(), fed, 0)
        for t in range(6):
            state, _ = algorithm.step(state, fed, 0, t)
        states.append(state.models)
    torch.testing.assert_close(*states, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", [Joint, IFCA])
def test_record_ignores_groups_and_order(method: type[Joint]):
    fed = easy_federation(2, 4, 1).to(torch.float64)
    record = run(method(TRAIN, k=3), fed, MODEL, rounds=5, seed=1)
    scores = ["purity", "ari", "nmi"]
    again = run(method(TRAIN, k=3), regrouped(fed), MODEL, rounds=5, seed=1)
    pd.testing.assert_series_equal(plain(record, *scores), plain(again, *scores), check_exact=True)
    turned = run(
        method(TRAIN, k=3),
        permuted(fed, torch.tensor([4, 2, 7, 0, 1, 6, 3, 5])),
        MODEL,
        rounds=5,
        seed=1,
    )
    np.testing.assert_allclose(plain(record), plain(turned), atol=1e-6)
    same = [
        r[r.metric == "accuracy"].set_index(["round", "client"]).cluster.sort_index()
        for r in (record, turned)
    ]
    assert same[0].equals(same[1])


def test_empty_clusters_are_given_a_device_each():
    # Model 0 is right, models 1 and 2 are wrong for sure: everybody picks 0 and two clusters are
    # empty.
    fed = pixels(*[([1.0], [0])] * 6)
    rows = torch.tensor([[5.0, -5, 0, 0], [-5, 5, 0, 0], [-5, 5, 0, 0]]).double()
    state, chosen = State(rows, torch.zeros(6, dtype=torch.long)), set()
    for seed in range(20):
        new, info = Joint(PIXEL, k=3, lam=0.0).step(state, fed, seed, 0)
        assert info["empty"] == 2 and new.labels.bincount().tolist() == [4, 1, 1]
        assert (new.models != rows).any(1).all()  # every model has learned
        chosen.add(tuple(new.labels.tolist()))
    assert len(chosen) > 5  # at random
    new, info = Joint(PIXEL, k=3, lam=0.0, rescue=False).step(state, fed, 0, 0)
    assert info["empty"] == 2 and new.labels.tolist() == [0] * 6 and new.models[1:].equal(rows[1:])


def test_initial_models():
    fed, theta = easy_federation(2, 4, 0), MODEL.init(0)
    independent = Joint(TRAIN, k=3).init(theta, fed, 0).models
    assert independent.equal(torch.stack([MODEL.init(0, k) for k in range(3)]))
    perturbed = Joint(TRAIN, k=3, inits="perturbed").init(theta, fed, 0).models
    off = (perturbed - theta).norm(dim=1) / (theta - theta.mean()).norm()
    assert off[0] == 0 and off[1:].tolist() == pytest.approx([0.1, 0.1], rel=0.2)
    assert not perturbed[1].equal(perturbed[2])


def test_newcomers_pick_for_themselves():
    fed, algorithm = easy_federation(2, 4, 0), Joint(TRAIN, k=2, lam=0.0)
    state = algorithm.init(MODEL.init(0), fed.take(range(6)), 0)
    for t in range(20):
        state, _ = algorithm.step(state, fed.take(range(6)), 0, t)
    assert not algorithm.trains_newcomers(state)
    state, _ = algorithm.step(algorithm.admit(state, fed, 0, 0), fed, 0, 20)
    assert purity(state.labels, fed.group) == 1


def test_a_device_that_diverges_is_named():
    fed = easy_federation(2, 2, 0)
    fed.x[2, 0] = torch.nan
    with pytest.raises(FloatingPointError, match=r"round 0: .*\[2\]"):
        run(Joint(LocalSGD(MODEL, lr=0.1, batch=100), k=2, lam=0.0), fed, MODEL, rounds=2, seed=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sign": "up"}, "sign='up'"),
        ({"loss": "median"}, "loss="),
        ({"similarity": "dot"}, "similarity="),
        ({"inits": "same"}, "inits="),
        ({"lam": 1.5}, "lam=1.5"),
        ({"k": 0}, "k=0"),
        ({"lam": float("nan")}, "lam=nan"),
        ({"k": True}, "k=True"),
        ({"k": 2.5}, "k=2.5"),
        (
            {"train": LocalSGD(MODEL, lr=0.1, momentum=0.9)},
            "momentum=0.9: a device takes one plain step",
        ),
        ({"train": LocalSGD(MODEL, lr=0.1, steps=10)}, "steps=10"),
        ({"train": LocalSGD(MODEL, lr=0.1, epochs=2)}, "epochs=2"),
        ({"train": DPSGD(MODEL, lr=0.1, epsilon=10.0)}, "train=DPSGD: .* adds no noise"),
        ({"train": UpdateNoise(TRAIN, epsilon=10.0)}, "train=UpdateNoise: .* adds no noise"),
    ],
)
def test_settings_are_checked(wrong: dict, message: str):
    with pytest.raises(ValueError, match=message):
        Joint(**{"train": TRAIN, **wrong})
    with pytest.raises(ValueError, match="k=9"):
        Joint(TRAIN, k=9).init(MODEL.init(0), easy_federation(2, 4, 0), 0)


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_finds_the_groups(groups: int, seed: int):
    fed = easy_federation(groups, 10, seed)
    train = LocalSGD(mlp((1, 4, 4), 4, hidden=(16,)), lr=0.1, batch=40)
    for algorithm in (Joint(train, k=groups), IFCA(train, k=groups)):
        record = run(algorithm, fed, train.model, rounds=20, seed=seed, eval_every=20)
        assert record[record.metric == "ari"].value.iloc[-1] == 1


@pytest.mark.parametrize("how", [{"lam": 0.1}, {"lam": 0.3}, {"lam": 0.9, "loss": "sum"}])
def test_models_too_bad_to_be_picked_are_not_looked_at_and_nothing_changes(how, monkeypatch):
    fed, looked_at, choose = easy_federation(2, 4, 0), [], fast.choose

    def watched(*given):
        seen = choose(*given)
        looked_at.append((seen.norm > 0).float().mean())
        return seen

    def play():
        train = LocalSGD(mlp(fed.shape, fed.classes, hidden=(8,)), lr=0.5, batch=16)
        return run(Joint(train, k=2, **how), fed, train.model, rounds=15, seed=0)

    monkeypatch.setattr(fast, "choose", watched)
    short = play()
    assert min(looked_at[1:]) < 1  # round 0 has no last update
    monkeypatch.setattr(
        "fedclust.fast.choice.margin", lambda method, count: torch.tensor(torch.inf)
    )
    pd.testing.assert_frame_equal(play(), short)
