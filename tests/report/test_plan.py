"""Seeds from the spread of a pilot, and the errors and power of the whole procedure."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedclust.report import plan
from fedclust.report.verdicts import REFUTED

SPREADS = (0.1, 0.3, 0.6, 1.0)  # in units of the printed effect
RUNS = 2000  # the standard error of a share of 5 % is 0.5 %


@pytest.fixture(scope="module")
def simulated():
    return {
        (effect, spread): plan.simulate(effect, spread, RUNS)
        for spread in SPREADS
        for effect in (0.0, 0.5, 1.0)
    }


@pytest.mark.parametrize("spread", SPREADS)
def test_what_is_not_there_is_not_shown(simulated, spread):
    found = simulated[0.0, spread]
    assert (found["holds"] + found["weaker"]) / RUNS <= 0.05


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("effect", [0.5, 1.0])
def test_what_is_there_is_not_refuted(simulated, effect, spread):
    found = simulated[effect, spread]
    assert sum(found[part] for part in REFUTED) / RUNS <= 0.05


def test_power(simulated):
    """A printed effect is nearly always shown unless seeds differ by as much as its size."""
    shown = [simulated[1.0, s]["holds"] + simulated[1.0, s]["weaker"] for s in SPREADS]
    assert np.all(np.array(shown) / RUNS >= (0.99, 0.99, 0.98, 0.9))
    decided = [1 - simulated[0.0, s]["open"] / RUNS for s in SPREADS]
    assert decided == pytest.approx([1.0, 1.0, 0.94, 0.59], abs=0.04)


def test_seeds_come_from_the_spread_alone():
    tests = [{"expr": "x", "paper": 0.1, "label": "x"}, {"expr": "y", "least": 1.0, "label": "y"}]
    claim = {"id": "c", "test": tests}
    paper = SimpleNamespace(claims={"c": claim})
    x = np.array(
        [0.01, 0.02, 0.03, 0.04, 0.05]
    )  # s = 0.0158, t(4) = 2.776 and, for two tests, 3.495
    frame = pd.DataFrame({"x": x, "y": 1.0})
    # ((2.776 + 3.495) * 0.0158 / 0.05)^2 = 3.9; y does not vary: 11 seeds
    for shift in (0.0, 5.0):
        (row,) = plan.table(paper, frame.assign(x=x + shift), 3600.0).itertuples(index=False)
        assert row[1] == "y" and row[3:] == (11, 6.0, False)
    (row,) = plan.table(paper, frame.assign(x=10 * x), 3600.0).itertuples(index=False)
    assert (row[1], row[3], row[4], row[5]) == ("x", 394, 15.0, True)
    more = pd.concat([frame, frame.assign(x=9.0)])  # what comes after the pilot does not count
    assert plan.table(paper, more, 3600.0).equals(plan.table(paper, frame, 3600.0))


def test_plan_of_what_was_not_run_says_how_to_run_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCLUST_FIGURES", str(tmp_path))
    with pytest.raises(ValueError, match="make dcfl TIER=paper"):
        plan.read("dcfl", "paper")
