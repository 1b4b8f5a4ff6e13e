"""What compiled code may do is listed, and everything else, or with FEDCLUST_PLAIN=1 all of it,
goes the plain way, which gives the same results."""

import ast
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedclust import algorithms, fast
from fedclust.algorithms import Joint, catalogue
from fedclust.models import Model, cnn, mlp
from fedclust.privacy import DPSGD
from fedclust.rng import key
from fedclust.simulation import run
from fedclust.training import LocalSGD
from tests.algorithms.toy import easy_federation

PACKAGE = Path(fast.__file__).parents[1]
MLP, CNN = mlp((1, 4, 4), 4, (8,)), cnn((1, 4, 4), 4, (3,), 3, "each", (5,))
BUFFERS = replace(MLP, dense=None)  # nothing is known of its layers


@pytest.mark.parametrize("model", [MLP, CNN], ids=["perceptron", "convolutions"])
@pytest.mark.parametrize("name", [method["name"] for method in catalogue()])
def test_every_method_gives_the_same_both_ways(name, model, monkeypatch):
    fed, records = easy_federation(2, 6, 0, samples=16), []
    method = getattr(algorithms, name)(LocalSGD(model, lr=0.1, batch=8))
    for plain in ("", "1"):
        monkeypatch.setenv("FEDCLUST_PLAIN", plain)
        records.append(run(method, fed, model, rounds=3, seed=0))
    compiled, plainly = records
    assert compiled.drop(columns="value").equals(plainly.drop(columns="value"))
    np.testing.assert_allclose(compiled.value, plainly.value, rtol=1e-3, atol=1e-4)
    assert (compiled.value != plainly.value).any()  # they are two ways


def test_private_training_is_the_same_both_ways(monkeypatch):
    fed, train = easy_federation(2, 2, 0), DPSGD(MLP, lr=0.1, batch=8, noise_multiplier=1.0)
    theta, ends = torch.stack([MLP.init(0)] * 4), []
    for plain in ("", "1"):
        monkeypatch.setenv("FEDCLUST_PLAIN", plain)
        ends.append(train(theta, fed, torch.arange(4), 0, 0))
    torch.testing.assert_close(*ends, rtol=0, atol=1e-4)


def test_noise_is_the_same_both_ways(monkeypatch):
    compiled = fast.noise(10_000, key(0, "test"), first=3)
    monkeypatch.setenv("FEDCLUST_PLAIN", "1")
    torch.testing.assert_close(
        fast.noise(10_000, key(0, "test"), first=3), compiled, rtol=0, atol=2e-6
    )


def test_nothing_compiled_is_imported_when_all_is_plain():
    work = """
import sys, torch
import fedclust as fc
fed = fc.partition.iid(fc.datasets.load("glyphs", n=80, n_test=20), clients=4)
shape, n = fed.shape, fed.classes
for model in (fc.models.mlp(shape, n, (8,)), fc.models.cnn(shape, n, (2,))):
    for train in (fc.LocalSGD(model, lr=0.1), fc.DPSGD(model, lr=0.1, noise_multiplier=1.0)):
        fc.run(fc.algorithms.FedAvg(train), fed, model, rounds=1, seed=0)
    fc.run(fc.algorithms.Joint(fc.LocalSGD(model, lr=0.1), k=2), fed, model, rounds=2, seed=0)
assert not {"numba", "llvmlite"} & set(sys.modules)
"""
    subprocess.run(
        [sys.executable, "-c", work], check=True, env=os.environ | {"FEDCLUST_PLAIN": "1"}
    )


@dataclass(frozen=True)
class Shy(LocalSGD):
    """A trainer with an option that nobody knows."""

    shyness: float = 0.0


@dataclass(frozen=True)
class Other(Model):
    pass


class Louder(Joint):
    def score(self, seen, dw, count):
        return -super().score(seen, dw, count)


THETA = torch.zeros(1, MLP.size)


@pytest.mark.parametrize(
    ("train", "may"),
    [
        (LocalSGD(MLP, lr=0.1), True),
        (LocalSGD(CNN, lr=0.1, momentum=0.9, weight_decay=0.1, prox=0.1, decay=0.9, steps=3), True),
        (DPSGD(MLP, lr=0.1, epsilon=10.0), True),
        (Shy(MLP, lr=0.1, shyness=0.5), False),
        (Shy(MLP, lr=0.1), False),
        (LocalSGD(MLP, lr=0.1, optimizer="adam"), False),
        (LocalSGD(MLP, lr=0.1, backend="loop"), False),
        (LocalSGD(MLP, lr=0.1, augment="crop_flip"), False),
        (LocalSGD(MLP, lr=0.1, autocast=True), False),
        (LocalSGD(MLP, lr=0.1, device="meta"), False),
        (LocalSGD(BUFFERS, lr=0.1), False),
        (LocalSGD(Other(MLP.build, MLP.shape, 4, MLP.dense), lr=0.1), False),
        (LocalSGD(cnn((1, 28, 28), 10, (4,), 9, "each", ()), lr=0.1), False),
    ],
)
def test_which_trainers_it_takes(train, may):
    assert fast.supports(train, THETA) == may
    assert fast.predicts(train.model, THETA[0]) == (train.model in (MLP, CNN))


def test_what_it_does_not_know_trains_by_the_plain_loop(monkeypatch):
    fed, trainer, loops = easy_federation(2, 1, 0), Shy(MLP, lr=0.1, shyness=0.5), []
    monkeypatch.setattr(
        Shy, "loop", lambda self, *given: loops.append(1) or LocalSGD.loop(self, *given)
    )
    trainer(torch.stack([MLP.init(0)] * 2), fed, torch.arange(2), 0, 0)
    assert loops == [1]


def test_half_precision_goes_the_plain_way():
    assert not fast.supports(LocalSGD(MLP, lr=0.1), THETA.half())
    assert not fast.predicts(MLP, THETA[0].half())


def test_a_method_that_scores_otherwise_chooses_the_plain_way():
    assert fast.chooses(Joint(LocalSGD(MLP, lr=0.1)), THETA)
    assert not fast.chooses(Louder(LocalSGD(MLP, lr=0.1)), THETA)


ENTERED = """
import os, sys
import pandas, sklearn.cluster, sklearn.metrics, torch
for pair in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    import fedclust as fc
    model, method = pair.split()
    fed = fc.partition.iid(fc.datasets.load("glyphs", n=80, n_test=20), clients=4)
    net = getattr(fc.models, model)(fed.shape, 10, (8,))
    method = getattr(fc.algorithms, method)(fc.LocalSGD(net, lr=0.1))
    fc.run(method, fed, net, rounds=2, seed=0)
    print(*(name for name in sys.modules if name.startswith("fedclust.fast.")), flush=True)
    os._exit(0)
"""


def test_a_run_enters_the_files_it_names():
    """Each name is a file, and no other is imported by a run in a new process."""
    pairs = [(model, method) for model in ("mlp", "cnn") for method in ("FedAvg", "Joint")]
    command = [sys.executable, "-c", ENTERED, *map(" ".join, pairs)]
    done = subprocess.run(command, check=True, cwd=PACKAGE.parent, capture_output=True, text=True)
    for pair, line in zip(pairs, done.stdout.splitlines(), strict=True):
        entered = {name.removeprefix("fedclust.") for name in line.split()}
        entered -= {"fast.tuning", "fast.sharing"}  # how long, never what
        named = fast.files(*pair)
        assert entered <= named, (pair, entered - named)
        files = {name.removeprefix("fast.") for name in named - {"fast"}}
        assert all((PACKAGE / "fast" / f"{name}.py").exists() for name in files)


def test_there_is_one_door():
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "fast":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [n for n in names if n.startswith("fedclust.fast.")], path
