"""A trial says in one line what is wrong with it, when it is made or before anything is trained."""

import math

import numpy as np
import pytest
import torch

from fedclust.experiments import Trial, TrialsFailed, alter, sweep

GOOD = {
    "data": {"name": "glyphs", "n": 60, "n_test": 20},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"kind": "mlp", "hidden": [4]},
    "train": {"lr": 0.1},
    "method": {"kind": "FedAvg"},
    "rounds": 1,
}


@pytest.mark.parametrize("value", ["0", 0.5, True, math.nan, -1, None, [0], 10**30])
@pytest.mark.parametrize("name", ["seed", "rounds", "eval_every", "split_seed"])
def test_whole_numbers_are_whole_numbers(name, value):
    if value is None and name != "seed":
        return  # as if it were not given
    with pytest.raises(ValueError, match=rf"^(settings.)?{name}=.*: must be a") as error:
        Trial(GOOD, value) if name == "seed" else Trial(GOOD | {name: value}, 0)
    assert len(str(error.value)) < 200


def test_numpys_numbers_are_numbers():
    usual = Trial(GOOD | {"rounds": 3}, 2)
    assert Trial(GOOD | {"rounds": np.int64(3)}, np.int64(2)).identity == usual.identity
    assert Trial(alter(GOOD, {"train.lr": np.float64(0.1)}), 2).settings == Trial(GOOD, 2).settings
    assert Trial(GOOD | {"method": {"kind": "FedAC", "alpha": math.inf}}, 0).identity


@pytest.mark.parametrize(
    "value", [math.nan, {1, 2}, np.zeros(3), torch.zeros(2), {3: 4}, object(), len, 10**400, b"x"]
)
def test_settings_are_plain_values(value):
    with pytest.raises(ValueError, match=r"^settings\.method\.alpha=.*: must be a number") as error:
        Trial(alter(GOOD, {"method.alpha": value}), 0)
    assert "\n" not in str(error.value) or isinstance(value, (np.ndarray, torch.Tensor))


def test_settings_without_an_end_are_refused():
    endless = dict(GOOD)
    endless["method"] = endless
    with pytest.raises(ValueError, match="must be a number, text, a list"):
        Trial(endless, 0)


@pytest.mark.parametrize("name", ["value", "metric", "seed", "algorithm", "round", "client"])
def test_tags_do_not_overwrite_the_record(name):
    with pytest.raises(ValueError, match=f"tag '{name}' is a column of the record"):
        Trial(GOOD, 0, tags={name: 1})


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"tags": {"panel": [1, 2]}}, "tag 'panel'=.*must be one number or text"),
        ({"tags": ["panel"]}, "tags=.*must be a dictionary"),
        ({"label": 3}, "label=3: must be text"),
        ({"task": None}, "task=None: must be text"),
    ],
)
def test_names_are_text(how, message):
    with pytest.raises(ValueError, match=message):
        Trial(GOOD, 0, **how)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "mnist"}, "data='mnist': must be like {'name': ..., ...}"),
        ({"model": {}}, "model={}: must be like {'kind': ..., ...}"),
        ({"method": {"kind": 3}}, "method={'kind': 3}: must be like"),
        ({"train": None}, "train=None: must be a dictionary of options"),
        ({"train.privacy": "dpsgd"}, "privacy='dpsgd': must be a dictionary"),
        ({"train.privacy": {"epsilon": 3}}, "privacy={'epsilon': 3}: must be like"),
        ({"events": {"start": 2}}, "events: start also needs join_every"),
        ({"events": {"join_every": 2}}, "events: join_every also needs start"),
        ({"events": {"drift_from": 2}}, "events: drift_from also needs drift_every"),
        ({"events": {"start": 2, "join_every": 0}}, "events.join_every=0: must be a whole"),
        ({"events": 5}, "events=5: must be a dictionary"),
    ],
)
def test_half_given_parts_are_named_when_the_trial_is_made(changes, message):
    with pytest.raises(ValueError) as error:
        Trial(alter(GOOD, changes), 0)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "trian"}, "task 'trian' is not known: there are"),
        ({"data.std": [0], "data.mean": [0]}, "std"),
        ({"data.shrink": 0}, "shrink=0: must be a whole number of at least 1"),
        ({"data.shrink": True}, "shrink=True: must be a whole number"),
        ({"data.first": 3}, "first=3: must be two numbers"),
        ({"data.nmae": "x"}, "nmae"),
        ({"model.hiden": [3]}, "'hiden'"),
        ({"model.hidden": "wide"}, "hidden"),
        ({"method.fration": 0.1}, "'fration'"),
        ({"train.lrr": 0.1}, "'lrr'"),
        ({"train.lr": "fast"}, "lr"),
        ({"train": {}}, "lr"),
        ({"train.device": "cuda"}, "device='cuda': this machine has none; use 'cpu'"),
        ({"train.device": "gpu"}, "device='gpu': must be 'cpu', 'cuda' or 'mps'"),
        ({"train.privacy": {"kind": "DPSGDD"}}, "privacy 'DPSGDD' is not known"),
        ({"partition": {"kind": "iid"}}, "needs the option 'clients'"),
    ],
)
def test_what_cannot_be_built_is_one_line_before_anything_is_trained(
    tmp_path, monkeypatch, changes, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    task = changes.get("task", "train")
    changes = {name: value for name, value in changes.items() if name != "task"}
    trials = [Trial(GOOD, 0), Trial(alter(GOOD, changes), 0, "typo", task=task)]
    with pytest.raises(ValueError) as error:
        sweep(trials, 1, "sequential", folder=tmp_path)
    said = str(error.value)
    assert said.startswith("trial 'typo': ") and message in said
    assert "\n" not in said and len(said) <= 300
    assert not list(tmp_path.glob("*/*.parquet"))


@pytest.mark.parametrize("changes", [{"partition.clients": 10**6}, {"partition.clients": "x"}])
def test_data_that_cannot_be_divided_need_no_traceback(tmp_path, changes):
    with pytest.raises(TrialsFailed) as error:
        sweep([Trial(alter(GOOD, changes), 0)], 1, "sequential", folder=tmp_path)
    assert "Traceback" not in str(error.value) and "partition: " in str(error.value)


@pytest.mark.parametrize(
    ("trials", "how", "message"),
    [
        ([], {}, "no trials"),
        ([GOOD], {}, "each must be a Trial"),
        ([Trial(GOOD, 0)], {"jobs": 1.5}, "jobs=1.5: must be a whole number"),
        ([Trial(GOOD, 0)], {"jobs": True}, "jobs=True"),
        ([Trial(GOOD, 0)], {"backend": ["loky"]}, "backend=\\['loky'\\]: must be one of"),
    ],
)
def test_sweeps_say_what_they_need(tmp_path, trials, how, message):
    with pytest.raises(ValueError, match=message):
        sweep(trials, folder=tmp_path, **how)
