"""Shared work: found by content, never taken for another."""

from dataclasses import replace

import torch

from fedclust import LocalSGD, datasets, models, partition
from fedclust.fast.sharing import Results, content, side_by_side
from fedclust.privacy import DPSGD

DATA = datasets.load("glyphs", n=60, n_test=20)
CLIENTS = torch.tensor([0, 2])


def net(hidden=4):
    return models.mlp(DATA.shape, len(DATA.classes), hidden=(hidden,))


def split(seed=0):
    return partition.iid(DATA, clients=3, seed=seed)


def train(trainer, fed, seed=0, t=0):
    return trainer(trainer.model.init(0).expand(2, -1), fed, CLIENTS, seed, t)


def test_equal_work_is_done_once_and_gives_the_same():
    results, alone = Results(4), train(LocalSGD(net(), lr=0.1), split())
    with side_by_side(results):
        first = train(LocalSGD(net(), lr=0.1), split())
        again = train(LocalSGD(net(), lr=0.1), split())  # all objects are new
    assert results.reused == 1 and again is first and first.equal(alone)
    assert train(LocalSGD(net(), lr=0.1), split()) is not first  # outside nothing is remembered


def test_whatever_differs_is_computed():
    results, usual, fed = Results(99), LocalSGD(net(), lr=0.1), split()
    other_labels = replace(fed, y=(fed.y + 1) % 10)
    with side_by_side(results):
        train(usual, fed)
        train(replace(usual, lr=0.2), fed)
        train(replace(usual, model=net(5)), fed)
        train(DPSGD(net(), lr=0.1, noise_multiplier=1.0), fed)
        train(usual, split(1))
        train(usual, other_labels)
        train(usual, fed, seed=1)
        train(usual, fed, t=1)
        usual(usual.model.init(1).expand(2, -1), fed, CLIENTS, 0, 0)
        usual(usual.model.init(0).expand(2, -1), fed, CLIENTS.flip(0), 0, 0)
    assert results.reused == 0 and len(results) == 10


def test_only_the_last_results_are_kept():
    results, usual, fed = Results(2), LocalSGD(net(), lr=0.1), split()
    with side_by_side(results):
        for t in (0, 1, 2, 0):
            train(usual, fed, t=t)
    assert len(results) == 2 and results.reused == 0


def test_unknown_objects_equal_only_themselves():
    one, other = object(), object()
    assert content(one) == content(one) != content(other)
    assert content(1) != content(True) and content(torch.zeros(2)) != content(
        torch.zeros(2).double()
    )
