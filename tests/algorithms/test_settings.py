"""Settings that mean nothing are refused in one line, before anything is trained."""

import math
import time
from itertools import product

import pytest
import torch

from fedclust import algorithms, datasets, partition, privacy, scenario, simulation
from fedclust.experiments import build
from fedclust.training import LocalSGD
from tests.algorithms.toy import Toward, toy_federation, toy_model

MODEL = toy_model()
TRAIN = Toward(torch.zeros(4, 4))
DATA = datasets.load("glyphs", n=200, n_test=50)
NUMBERS = [math.nan, "0.5", True, None, -math.inf, [1], "x" * 2000]
OPTIONAL = ("merge", "clusters")

FIELDS = {
    "FedAvg": ("fraction",),
    "FedProx": ("fraction", "mu"),
    "CFL": ("fraction", "eps1", "eps2", "warmup"),
    "DCFL": ("fraction", "preference", "power", "distance", "new_models", "recluster"),
    "OCFL": ("fraction", "merge", "merge_on"),
    "FedAC": ("fraction", "alpha", "loss", "reading", "warmup"),
    "FedACP": ("fraction", "beta"),
    "CBCC": ("fraction", "clusters"),
    "ABFA": ("fraction",),
    "CAFA": ("fraction", "clusters"),
}
WRONG = [
    (method, field, value)
    for method, names in FIELDS.items()
    for field in names
    for value in NUMBERS
    if not (value is None and field in OPTIONAL) and not (field == "beta" and value == -math.inf)
]


def refuses(name, make):
    begin = time.process_time()
    with pytest.raises(ValueError, match=name) as caught:
        make()
    assert "\n" not in str(caught.value) and len(str(caught.value)) <= 300
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(("method", "field", "value"), WRONG)
def test_methods(method, field, value):
    refuses(f"^{field}=", lambda: getattr(algorithms, method)(TRAIN, **{field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *product(("noise_multiplier", "clip"), (*NUMBERS, -1)),  # 1e300 is large, but possible
        *product(("epsilon", "delta", "participations"), (*NUMBERS, -1, 1e300)),
    ],
)
def test_private_training(field, value):
    settings = {"epsilon": 1.0} if field != "noise_multiplier" else {}
    refuses(f"{field}=", lambda: privacy.DPSGD(MODEL, lr=0.1, **(settings | {field: value})))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *product(("epsilon", "delta", "clip"), (math.nan, "1", True, 0, -1, -math.inf)),
        *product(("epsilon", "delta"), (1e-320,)),
    ],
)
def test_noise_on_updates(field, value):
    refuses(f"{field}=", lambda: privacy.UpdateNoise(TRAIN, **{field: value}))


def test_no_noise_is_enough():
    privacy.epsilon_of(1.0, 0.5, 1, 1e-5)  # imports the accountant
    train = privacy.DPSGD(MODEL, lr=0.1, epsilon=1e-3, batch=1)
    fed = toy_federation(1)
    refuses("^epsilon=0.001: .* larger", lambda: train(torch.zeros(1, 4), fed, fed.ids, 0, 0))


RUNS = [(name, value) for name in ("rounds", "eval_every", "seed") for value in (*NUMBERS, 0.5)]


@pytest.mark.parametrize(("name", "value"), RUNS)
def test_runs(name, value):
    settings = {"rounds": 2, "seed": 0} | {name: value}
    method = algorithms.FedAvg(LocalSGD(MODEL, lr=0.1))
    refuses(f"^{name}=", lambda: simulation.run(method, toy_federation(2), MODEL, **settings))


PARTS = {
    "iid": ("clients", "limit"),
    "label_slices": ("slices_per_client",),
    "dirichlet_rotated": ("alpha", "samples", "test_share"),
    "class_groups": ("groups",),
    "class_table": ("devices",),
    "iid_mix": ("generator", "test"),
}
POSSIBLE = (("alpha", 0.5), ("test_share", 0.5), ("limit", None), ("devices", None))
WRONG_PARTS = [
    (kind, name, value)
    for kind, names in PARTS.items()
    for name, value in product(names, (*NUMBERS, 0, -1, 0.5))
    if (name, value) not in POSSIBLE
]


@pytest.mark.parametrize(("kind", "name", "value"), WRONG_PARTS)
def test_partitions(kind, name, value):
    needed = {"iid": {"clients": 4}, "label_slices": {"clients": 4}, "class_groups": {"clients": 4}}
    settings = needed.get(kind, {"clients": 2} if kind == "dirichlet_rotated" else {})
    if kind == "class_table":
        settings = {"table": [[1] * 10] * 2}
    make = getattr(partition, kind)
    refuses(f"{name}", lambda: make(DATA, **(settings | {name: value})))


@pytest.mark.parametrize(
    "table", [[[math.nan] * 10], [[math.inf] * 10], "x", [["a"] * 10], [[1], [2, 3]]]
)
def test_tables(table):
    refuses("^table", lambda: partition.class_table(DATA, table))


@pytest.mark.parametrize("at", [*NUMBERS, -1, 0.5])
def test_events(at):
    refuses("^at=", lambda: scenario.Drift(at))
    refuses("^(start|every)=", lambda: scenario.staggered(toy_federation(4), 2, at, 9))


@pytest.mark.parametrize(
    "plan", [{"start": 1}, {"join_every": 2}, {"drift_from": 1}, {"drift_every": 2}]
)
def test_half_an_event(plan):
    settings = {"rounds": 9, "events": plan}
    refuses("must be given together", lambda: build.with_events(toy_federation(4), settings))
