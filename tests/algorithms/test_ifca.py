"""IFCA: choices and means worked out by hand, its two averages, its limits and traps."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedclust.algorithms import IFCA, FedAvg, State
from fedclust.metrics import purity
from fedclust.models import mlp
from fedclust.privacy import DPSGD, UpdateNoise
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.test_joint import pixels, plain
from tests.algorithms.toy import easy_federation, toy_model

MODEL = mlp((1, 4, 4), 4, hidden=(8,))
TRAIN = LocalSGD(MODEL, lr=0.1, batch=16)
PIXEL = LocalSGD(toy_model(), lr=1.0, batch=8)


def test_choice_and_both_averages_by_hand():
    # Rows (w0, w1, b0, b1). Model 0 is for class 0 at x = 1, model 1 for class 1. Devices 0 to 2
    # have x = 1 of class 0 and pick model 0, device 3 has class 1 and picks model 1. Its own logits
    # are (2, -2): p = (0.982, 0.018), gradient (p - onehot) x and p - onehot, the same for all.
    fed = pixels(*[([1.0], [0])] * 3, ([1.0], [1]))
    rows = torch.tensor([[1.0, -1, 1, -1], [-1, 1, -1, 1]]).double()
    wrong = 1 / (1 + np.exp(4.0))
    ends = torch.stack([rows[0] + wrong * rows[0], rows[1] + wrong * rows[1]])  # after one step
    state = State(rows, torch.zeros(4, dtype=torch.long))
    new, info = IFCA(PIXEL, k=2).step(state, fed, 0, 0)
    assert new.labels.tolist() == [0, 0, 0, 1] and info["empty"] == 0
    torch.testing.assert_close(new.models, ends)
    assert info["train_loss"] == pytest.approx(-np.log(1 - wrong))
    assert (info["down"], info["up"], info["trained"].tolist()) == (8, 4, [1, 1, 1, 1])
    option = IFCA(replace(PIXEL, steps=1), k=2, averages="gradients")
    new, _ = option.step(state, fed, 0, 0)  # 3/4 and 1/4 of the steps: over all participants
    torch.testing.assert_close(new.models, rows + torch.tensor([[3], [1]]) / 4 * (ends - rows))


def test_it_takes_all_its_steps():
    fed, theta = easy_federation(2, 4, 0), MODEL.init(0)
    for steps in (1, 10):
        train = replace(TRAIN, steps=steps)
        method = IFCA(train, k=4)
        before = method.init(theta, fed, 0)
        after, _ = method.step(before, fed, 0, 0)
        own = train(before.models[after.labels], fed, torch.arange(8), 0, 0)
        for k in after.labels.unique().tolist():
            torch.testing.assert_close(after.models[k], own[after.labels == k].mean(0))


def test_one_cluster_is_fedavg():
    fed = easy_federation(2, 4, 0, samples=20)
    train, own = replace(TRAIN, epochs=2, momentum=0.5), ["train_loss", "empty"]
    fedavg = run(FedAvg(train, weighted=False), fed, MODEL, rounds=4, seed=0)
    ifca = run(IFCA(train, k=1), fed, MODEL, rounds=4, seed=0)
    assert plain(ifca, *own).equals(plain(fedavg))


def test_all_samples_or_a_batch_decide():
    # All four samples say model 1, the first batch of one may say model 0.
    fed = pixels(([1.0, 1.0, 1.0, 1.0], [0, 1, 1, 1]))
    rows = torch.tensor([[1.0, -1, 1, -1], [-1, 1, -1, 1]]).double()
    state, one = State(rows, torch.zeros(1, dtype=torch.long)), replace(PIXEL, batch=1)
    picks = {
        on: {int(IFCA(one, k=2, chosen_on=on).losses(rows, fed, 0, t).argmin()) for t in range(20)}
        for on in ("all", "batch")
    }
    assert picks == {"all": {1}, "batch": {0, 1}}
    assert IFCA(one, k=2).step(state, fed, 0, 0)[0].labels.tolist() == [1]


def test_a_model_that_nobody_picked_stays():
    fed = pixels(*[([1.0], [0])] * 3)
    rows = torch.tensor([[5.0, -5, 0, 0], [-5, 5, 0, 0]]).double()
    new, info = IFCA(PIXEL, k=2).step(State(rows, torch.zeros(3).long()), fed, 0, 0)
    assert info["empty"] == 1 and new.models[1].equal(rows[1]) and not new.models[0].equal(rows[0])


def test_who_does_not_take_part_keeps_its_cluster():
    fed, method = easy_federation(2, 4, 0), IFCA(TRAIN, k=2, fraction=0.5)
    state = method.init(MODEL.init(0), fed, 0)._replace(labels=torch.ones(8, dtype=torch.long))
    new, info = method.step(state, fed, 0, 0)
    assert info["trained"].sum() == 4 and info["down"] == 8
    assert (new.labels[info["trained"] == 0] == 1).all()


def test_restarts_are_other_draws():
    fed, theta = easy_federation(2, 4, 0), MODEL.init(0)
    first, second = (IFCA(TRAIN, k=2, restart=r).init(theta, fed, 0).models for r in (0, 1))
    assert first.equal(torch.stack([MODEL.init(0, 0), MODEL.init(0, 1)]))
    assert second.equal(torch.stack([MODEL.init(0, 2), MODEL.init(0, 3)]))


def test_private_training_is_really_private():
    fed, theta = easy_federation(2, 4, 0), MODEL.init(0)
    quiet = DPSGD(MODEL, lr=0.1, batch=16, noise_multiplier=0.0)
    ends = [
        IFCA(train, k=2).step(IFCA(train, k=2).init(theta, fed, 0), fed, 0, 0)[0]
        for train in (quiet, replace(quiet, noise_multiplier=5.0))
    ]
    assert ends[0].labels.equal(ends[1].labels)  # the choice is by losses, before any training
    assert (ends[0].models - ends[1].models).norm() > 0.1


@pytest.mark.parametrize("groups", [2, 4])
def test_finds_the_groups(groups):
    for seed in range(3):
        fed = easy_federation(groups, 10, seed)
        train = LocalSGD(mlp((1, 4, 4), 4, hidden=(16,)), lr=0.1, batch=40, steps=2)
        record = run(IFCA(train, k=groups), fed, train.model, rounds=20, seed=seed, eval_every=20)
        assert record[record.metric == "ari"].value.iloc[-1] == 1


def test_newcomers_pick_for_themselves():
    fed, algorithm = easy_federation(2, 4, 0), IFCA(replace(TRAIN, steps=5), k=2)
    state = algorithm.init(MODEL.init(0), fed.take(range(6)), 0)
    for t in range(10):
        state, _ = algorithm.step(state, fed.take(range(6)), 0, t)
    assert not algorithm.trains_newcomers(state)
    state, _ = algorithm.step(algorithm.admit(state, fed, 0, 0), fed, 0, 10)
    assert purity(state.labels, fed.group) == 1


PRIVATE = DPSGD(MODEL, lr=0.1, epsilon=10.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, "k=0"),
        ({"k": 1.5}, "k=1.5"),
        ({"restart": -1}, "restart=-1"),
        ({"averages": "both"}, "averages='both'"),
        ({"chosen_on": "test"}, "chosen_on='test'"),
        ({"fraction": float("nan")}, "fraction=nan"),
        ({"averages": "gradients"}, "steps=None: a gradient is one step"),
        ({"chosen_on": "batch", "train": PRIVATE}, "chosen_on='batch' with DPSGD"),
        ({"chosen_on": "batch", "train": UpdateNoise(TRAIN, epsilon=1.0)}, "with UpdateNoise"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(ValueError, match=message):
        IFCA(**{"train": TRAIN, **wrong})
    with pytest.raises(ValueError, match="k=9"):
        IFCA(TRAIN, k=9).init(MODEL.init(0), easy_federation(2, 4, 0), 0)
