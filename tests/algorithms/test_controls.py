"""The controls: worked out by hand, and equal to FedAvg where there is nothing to know."""

import pytest
import torch

from fedclust.algorithms import FedAvg, FineTuned, Oracle, Told
from fedclust.models import mlp
from fedclust.rng import key
from fedclust.scenario import Join
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.toy import Toward, easy_federation, toy_federation, toy_model

TARGETS = torch.tensor([[1.0, 0.0], [3.0, 4.0], [-1.0, 8.0], [0.0, 1.0]])
START = torch.tensor([1.0, 2.0])
MODEL = mlp((1, 4, 4), 4, hidden=(8,))
TRAIN = LocalSGD(MODEL, lr=0.1, batch=10)


def scores(record):
    return record[record.metric.isin(["accuracy", "loss"])].value.tolist()


def test_oracle_by_hand():
    """Group 0 goes to (1, 0) and (3, 4) with weights 1 : 3, group 1 to (-1, 8) alone."""
    fed = toy_federation([1, 3, 2], group=[0, 0, 1])
    method = Oracle(Toward(TARGETS))
    state, info = method.step(method.init(START, fed, 0), fed, 0, 0)
    assert state.models.tolist() == [[2.5, 3.0], [-1.0, 8.0]]
    assert state.labels.tolist() == [0, 0, 1] and info["up"] == 3


def test_oracle_follows_a_client_that_changes_its_group():
    fed = toy_federation([2, 2, 2], group=[0, 0, 1])
    method = Oracle(Toward(TARGETS))
    state, _ = method.step(method.init(START, fed, 0), fed, 0, 0)
    fed.group[1] = 1
    state, _ = method.step(state, fed, 0, 1)
    assert state.models.tolist() == [[1.0, 0.0], [1.0, 6.0]] and state.labels.tolist() == [0, 1, 1]


def test_oracle_admits_newcomers_of_known_and_of_new_groups():
    fed = toy_federation([2, 2], group=[0, 1])
    late = toy_federation([2, 2], group=[1, 2], ids=[2, 3])
    joined = fed.join(late)
    method = Oracle(LocalSGD(toy_model(), lr=0.1))
    first = toy_model().init(0)
    state = method.admit(method.init(first, fed, 0), joined, 0, 1)
    assert state.labels.tolist() == [0, 1, 1, 2] and state.models.equal(first.repeat(3, 1))


def test_told_by_hand():
    """Group 0 holds label 0 alone, so it never answers 1, whatever the model says."""
    fed = toy_federation([2, 2], group=[0, 1])
    fed.y[0], fed.y[1] = torch.tensor([0, 0]), torch.tensor([0, 1])
    fed.y_test[:] = torch.tensor([[0, 1], [0, 1]])
    says_one = torch.tensor([0.0, 0.0, -1.0, 1.0])  # weights, then biases: always answers 1
    method = Told(Toward(says_one.repeat(2, 1)))
    record = run(method, fed, toy_model(), rounds=1, seed=0)
    assert record[record.metric == "accuracy"].value.tolist() == [0.5, 0.5]
    state, _ = method.step(method.init(says_one, fed, 0), fed, 0, 0)
    served = method.served(state, fed, 0, 0)
    logits = [
        toy_model().logits(row, torch.ones(1, 1, 1, 1)).argmax().item() for row in served.models
    ]
    assert logits == [0, 1] and state.models.equal(says_one[None])


def test_told_needs_a_bias_of_the_answers():
    class Headless:
        name = "headless"

        def module(self, row):
            return torch.nn.Linear(3, 2, bias=False)

    fed = toy_federation(2)
    with pytest.raises(ValueError, match="model='headless': its last parameter must be the bias"):
        Told(Toward(torch.zeros(2, 6), model=Headless())).init(torch.zeros(6), fed, 0)


def test_fine_tuned_by_hand():
    """The rounds are FedAvg's; what is served is one more training from FedAvg's model."""
    fed = easy_federation(2, 2, 0)
    method, start = FineTuned(TRAIN, epochs=2), MODEL.init(0)
    state, info = method.step(method.init(start, fed, 0), fed, 0, 0)
    plain, _ = FedAvg(TRAIN).step(FedAvg(TRAIN).init(start, fed, 0), fed, 0, 0)
    served = method.served(state, fed, 0, 0)
    assert state.models.equal(plain.models) and (info["down"], info["up"]) == (4, 4)
    alone = LocalSGD(MODEL, lr=0.1, batch=10, epochs=2)
    rows = alone(plain.models.repeat(4, 1), fed, torch.arange(4), key(0, "alone"), 0)
    assert served.models.equal(rows) and not rows[0].equal(rows[1])
    assert served.labels.tolist() == [0, 1, 2, 3]


def test_clients_are_fine_tuned_only_where_they_are_scored(monkeypatch):
    fed, asked = easy_federation(2, 2, 0), []
    original = FineTuned.served
    monkeypatch.setattr(
        FineTuned, "served", lambda self, *args: asked.append(args[-1]) or original(self, *args)
    )
    method = FineTuned(TRAIN, epochs=1)
    often = run(method, fed, MODEL, rounds=6, seed=0)
    asked.clear()
    seldom = run(method, fed, MODEL, rounds=6, seed=0, eval_every=4)
    assert asked == [0, 4, 5]
    assert scores(seldom) == scores(often[often["round"].isin(asked)])


@pytest.mark.parametrize("control", [Oracle, Told, FineTuned])
def test_with_nothing_to_know_it_is_fedavg_exactly(control):
    """One group, all labels in it, no epochs alone."""
    fed = easy_federation(1, 6, 0)
    options = {"epochs": 0} if control is FineTuned else {}
    late = fed.take([5])
    events = [Join(2, late)]
    for fraction in (1.0, 0.5):
        ours, plain = (
            run(method, fed.take(range(5)), MODEL, rounds=4, seed=0, events=events)
            for method in (control(TRAIN, fraction, **options), FedAvg(TRAIN, fraction))
        )
        assert scores(ours) == scores(plain)
        assert (
            ours[ours.metric == "bytes"].value.tolist()
            == plain[plain.metric == "bytes"].value.tolist()
        )


def test_the_controls_help_where_there_are_groups():
    fed = easy_federation(2, 3, 0)  # the groups name the images differently
    last = {}
    for method in (FedAvg(TRAIN), Oracle(TRAIN), FineTuned(TRAIN, epochs=5)):
        record = run(method, fed, MODEL, rounds=8, seed=0)
        last[type(method)] = record[record.metric == "accuracy"].value.iloc[-6:].mean()
    assert last[Oracle] > 0.9 and min(last[Oracle], last[FineTuned]) > last[FedAvg] + 0.1
