"""Checkpoints: a damaged one is named and removed, and the run gives the same without it."""

import random
import warnings

import pandas as pd
import pytest
import torch

from fedclust import rng
from fedclust.algorithms import DCFL
from fedclust.record import Checkpoint, Record
from fedclust.simulation import run
from tests.algorithms.toy import Toward, toy_federation, toy_model

MODEL, FED = toy_model(), toy_federation(4)
METHOD = DCFL(Toward(torch.randn(4, 4, generator=rng.stream(0, "targets")), 0.5))


def play(path=None, stop=None):
    def progress(done, rounds):
        if done == stop:
            raise KeyboardInterrupt

    return run(METHOD, FED, MODEL, rounds=6, seed=1, checkpoint=path, progress=progress)


@pytest.fixture(scope="module")
def whole():
    return play()


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run that was stopped after four rounds, with the checkpoints of rounds 3 and 2."""
    monkeypatch.setattr("fedclust.record.CHECKPOINT_SECONDS", -1.0)
    path = tmp_path / "run.pt"
    with pytest.raises(KeyboardInterrupt):
        play(path, stop=4)
    monkeypatch.setattr("fedclust.record.CHECKPOINT_SECONDS", 1e9)
    return path


def damaged(content, how, draw):
    at = draw.randrange(len(content))
    if how == "bit":
        return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    if how == "cut":
        return content[:at]
    if how == "zeros":
        return content[:at] + bytes(len(content) - at)
    return content[:at] + b"more" + content[at:]


@pytest.mark.parametrize("how", ["bit", "cut", "zeros", "more"])
def test_damage_costs_time_only(stopped, whole, how):
    draw, before = random.Random(how), stopped.with_suffix(".before")
    contents = {path: path.read_bytes() for path in (stopped, before)}
    for case in range(6):
        for path, content in contents.items():
            path.write_bytes(content)
        broken = list(contents)[: 1 + case % 2]  # the last one, or both
        for path in broken:
            path.write_bytes(damaged(contents[path], how, draw))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            pd.testing.assert_frame_equal(play(stopped), whole, check_exact=True)
        text = [str(warning.message) for warning in said if "checkpoint" in str(warning.message)]
        changed = [path for path in broken if not path.exists()]
        assert len(text) == len(changed) and all(str(path) in " ".join(text) for path in changed)
        assert changed == broken


def test_the_one_before_saves_the_rounds_until_then(stopped, whole):
    stopped.unlink()
    seen = []
    run(
        METHOD,
        FED,
        MODEL,
        rounds=6,
        seed=1,
        checkpoint=stopped,
        progress=lambda t, _: seen.append(t),
    )
    assert seen[0] > 1


def test_models_that_are_not_finite_are_not_used(stopped, whole):
    about = dict(whole.attrs)
    saved = Checkpoint(stopped, about)
    state, record, done = saved.restore()
    state.models[state.labels[0]] = torch.nan
    saved.save(state, Record(about, record.blocks), done)
    with pytest.warns(UserWarning, match=r"run\.pt is removed, its models are not finite"):
        pd.testing.assert_frame_equal(play(stopped), whole, check_exact=True)
