"""Malformed trials: each is refused before anything is trained, in one clear line."""

import math
from collections.abc import Callable
from functools import partial

import pytest

from fedclust.experiments import Trial, alter, sweep
from tests.faults.campaign import complaints, some

BASE = {
    "data": {"name": "glyphs", "n": 200, "n_test": 40},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"kind": "mlp", "hidden": [4]},
    "train": {"lr": 0.1, "batch": 20},
    "method": {"kind": "FedAvg"},
    "rounds": 1,
}
NAN, INF = math.nan, math.inf
NO_NUMBER = ["many", True, [], {}, NAN]
WHOLE = [*NO_NUMBER, 1.5, -1, "3", None, INF]  # wrong for what counts from 1 or 0
POSITIVE = [*NO_NUMBER, 0, -0.5, "0.1", None]
SHARE = [*NO_NUMBER, -0.1, 1.5, "0.5", None]
CHOICE = ["no such choice", 3, True, [], {}, None, ""]
FLAG = ["maybe", 3, 0.5, [], {}, None]
PART = ["text", 3, True, [], None, {}, {"kind": 3}, {"kind": None}]
SWITCH = {  # settings that other cases need beside their own
    "class_groups": {"partition": {"kind": "class_groups", "clients": 4}},
    "dirichlet": {"partition": {"kind": "dirichlet_rotated", "clients": 4, "samples": 20}},
    "slices": {"partition": {"kind": "label_slices", "clients": 4}},
    "cnn": {"model": {"kind": "cnn", "channels": [2, 2], "kernel": 3, "hidden": [4]}},
    "private": {"train": {"lr": 0.1, "privacy": {"kind": "DPSGD", "epsilon": 5.0, "delta": 0.01}}},
    "noise": {"train": {"lr": 0.1, "privacy": {"kind": "UpdateNoise", "epsilon": 5.0}}},
    **{kind: {"method": {"kind": kind}} for kind in ("CFL", "DCFL", "IFCA", "FedProx", "OCFL")},
}
WRONG = {
    "": {
        "data": ["text", 3, None, [], {}, {"name": 3}, {"name": "imagenet"}, {"name": "a.b.c"}],
        "data.n": [*WHOLE, 10**12],
        "data.n_test": WHOLE,
        "data.seed": [*NO_NUMBER, 1.5, "3"],
        "data.classes": [*WHOLE, 11],
        "data.color": FLAG[:-1],
        "data.colour": [True],
        "data.mean": ["0.5", 0.5, [], [NAN], [0.1, 0.2], ["a"], True, {}],
        "data.std": [[0.5]],  # without a mean
        "data.shrink": [*WHOLE, 0, 3],
        "data.first": ["ten", 3, [1], [1, 2, 3], ["a", "b"], True, {}],
        "data.pooled": FLAG[:-1],
        "data.stand_in": ["imagenet", 3, True, [], {}, "glyphs"],
        "partition": [*PART, {"kind": "no_such"}, {"kind": "json"}, {"kind": "mine.no_such"}],
        "partition.clients": [*WHOLE, 0, 10**9],
        "partition.many": [4],
        "partition.validation": [*SHARE[:-1], 1.0],
        "model": [*PART, {"kind": "transformer"}, {"kind": "mine.no_such"}],
        "model.hidden": ["many", 3, [0], [-1], [1.5], [True], ["a"], None, {}, [10**12]],
        "model.width": [1.0],
        "train": ["text", 3, None, [], {}],
        "train.lr": [*POSITIVE, INF],
        "train.epochs": [*WHOLE, 0],
        "train.batch": [*WHOLE, 0],
        "train.steps": [*WHOLE[:-2], 0, INF],
        "train.momentum": [*NO_NUMBER, -0.1, "0.9", None, INF],
        "train.weight_decay": [*NO_NUMBER, -0.1, "0.1", None, INF],
        "train.prox": [*NO_NUMBER, -0.1, "0.1", None, INF],
        "train.decay": [*POSITIVE, 1.5],
        "train.optimizer": CHOICE,
        "train.augment": CHOICE[:-2],
        "train.backend": CHOICE,
        "train.device": CHOICE,
        "train.autocast": FLAG,
        "train.learning_rate": [0.1],
        "train.privacy": ["text", 3, True, {"kind": "no_such"}, {"kind": 3}],
        "method": [*PART, {"kind": "FedMagic"}, {"kind": "catalogue"}, {"kind": "mine.no_such"}],
        "method.fraction": [*SHARE, 0],
        "method.no_such": [1],
        "rounds": [*WHOLE, 0, 10**30],
        "eval_every": [*WHOLE[:-2], 0, INF],
        "split_seed": [*WHOLE[:-2], INF],
        "events": ["text", 3, True, {"start": 2}, {"join_every": 2}, {"drift_from": 1}],
        "event": [{}],
    },
    "class_groups": {"partition.groups": [*WHOLE, 0, [[]], [["a"]], [[99]]]},
    "dirichlet": {
        "partition.alpha": [*POSITIVE, INF],
        "partition.samples": [*WHOLE, 0, 10**12],
        "partition.test_share": [*SHARE, 0, 1],
    },
    "slices": {"partition.slices_per_client": [*WHOLE, 0, 10**9]},
    "cnn": {
        "model.channels": ["many", 3, [0, 2], [-1, 2], [1.5, 2], [True, 2], None, {}],
        "model.kernel": [*WHOLE, 0, 99],
        "model.pool": CHOICE,
    },
    "private": {
        "train.privacy.epsilon": [*POSITIVE[:-1], 1e300],
        "train.privacy.delta": [*POSITIVE, 1.5],
        "train.privacy.clip": [*POSITIVE, INF],
        "train.privacy.sigma": [1.0],
    },
    "noise": {"train.privacy.epsilon": POSITIVE[:-1]},  # an infinite one is no noise
    "FedProx": {"method.mu": [*NO_NUMBER, -0.1, "0.1", None, INF]},
    "IFCA": {"method.k": [*WHOLE, 0]},
    "CFL": {"method.eps1": [*NO_NUMBER, -0.1, "0.1"], "method.eps2": [*NO_NUMBER, -0.1, "0.1"]},
    "DCFL": {"method.similarity": CHOICE, "method.distance": CHOICE},
    "OCFL": {"method.fraction": [*SHARE, 0]},
}
ITSELF = {  # a trial's own arguments
    "seed": [-1, 0.5, "0", True, None, [], NAN, 10**30],
    "label": [3, None, [], True],
    "tags": ["text", 3, [], {"value": 1}, {"seed": 1}, {"accuracy": [1]}, {3: 1}, {"a": {}}],
    "task": ["no_such", 3, None, [], "json"],
}


def cases(folder) -> dict[str, Callable]:
    """Each wrong value in an otherwise sound trial."""
    found = {}
    for switch, wrong in WRONG.items():
        base = BASE | SWITCH.get(switch, {})
        for path, values in wrong.items():
            for value in values:
                name = f"{switch} {path}={value!r}".strip()
                found[name] = partial(tried, {"settings": alter(base, {path: value})}, folder)
    for name, values in ITSELF.items():
        for value in values:
            found[f"{name}={value!r}"] = partial(tried, {name: value}, folder)
    for name in BASE:
        less = {key: value for key, value in BASE.items() if key != name}
        found[f"no {name}"] = partial(tried, {"settings": less}, folder)
    return found


def tried(changes: dict, folder) -> None:
    trial = Trial(**({"settings": BASE, "seed": 0} | changes))
    sweep([trial], 1, "sequential", folder=folder)


def test_the_sound_trial_is_accepted(tmp_path):
    for change in SWITCH.values():
        tried({"settings": BASE | change}, tmp_path)


def test_malformed_trials(tmp_path):
    every = cases(tmp_path)
    assert len(every) >= 300
    found = complaints({name: every[name] for name in some(list(every))})
    assert not found, f"{len(found)} of {len(some(list(every)))}:\n" + "\n".join(found)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("trials", [[], [3], ["trial"], [None]])
def test_sweeps_of_something_else(trials, tmp_path):
    assert not complaints({"sweep": lambda: sweep(trials, 1, "sequential", folder=tmp_path)})
