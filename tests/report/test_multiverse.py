"""The multiverse of readings: shares and effects worked out by hand, resume, and what is run."""

import json
import tomllib

import numpy as np
import pandas as pd
import pytest

from fedclust.experiments.draws import draws
from fedclust.report import measuring, multiverse, papers
from tests.report.test_papers import TOML

SETTING = """
[multiverse]
plans = ["main"]
headline = ["c1"]
[[setting]]
name = "rate"
value = 1.0
source = "assumed"
readings = [
  { value = 2.0, reason = "twice" },
  { value = 3.0, reason = "three times" },
]
"""


def toy(more=""):
    text = TOML.replace("[[table]]", SETTING.replace("\n]\n", f"\n{more}]\n") + "[[table]]", 1)
    return papers.check(tomllib.loads(text), "toy.toml")


# Nine draws, three of each value. A is ahead of B by 0.2 at rate 1, by 0 at rate 2, and behind at
# rate 3; c1 asks for A above B, 0.1 are printed. B's mean is printed as 0.6 (25 % are allowed).
RATES = [1.0, 2.0, 3.0] * 3
B = [0.6, 0.6, 0.6, 0.5, 0.5, 0.5, 0.2, 0.2, 0.2]
AHEAD = [0.21, 0.0, -0.1, 0.2, 0.02, -0.12, 0.19, -0.02, -0.08]


def toy_frames():
    drawn = pd.DataFrame({"rate": RATES})
    return drawn, pd.DataFrame({"a": np.add(AHEAD, B), "b": B})


def test_shares_of_a_hand_worked_toy():
    drawn, found = toy_frames()
    claim = multiverse.judged(toy(), drawn, found, found[:1])[0]
    assert claim["headline"]
    assert (claim["sign"]["held"], claim["sign"]["of"]) == (4, 9)  # three at rate 1, one at rate 2
    assert (claim["size"]["held"], claim["size"]["of"]) == (
        3,
        9,
    )  # at least half of what is printed
    assert claim["met"] == [True] * 6 + [False] * 3  # 0.2 is not within 25 % of 0.6
    assert (claim["controlled sign"]["held"], claim["controlled sign"]["of"]) == (3, 6)
    assert (claim["controlled size"]["held"], claim["controlled size"]["of"]) == (2, 6)


def test_the_value_that_decides_is_named():
    drawn, found = toy_frames()
    first, second = multiverse.judged(toy(), drawn, found, found[:1])[0]["decides"]
    assert (first["setting"], first["from"], first["to"]) == ("rate", 1.0, 3.0)
    assert first["difference"] == pytest.approx(-0.3) and first["high"] < 0 and first["decides"]
    assert second["to"] == 2.0 and second["difference"] == pytest.approx(-0.2)
    assert (first["held to"]["held"], first["held from"]["held"]) == (0, 3)


def test_welch_by_hand():
    """Means 2 and 5, variances 1 and 4, three values each: t of 2.94 degrees of freedom."""
    found = multiverse.welch(np.array([1.0, 2.0, 3.0]), np.array([3.0, 5.0, 7.0]), 1)
    assert found["difference"] == -3.0
    assert found["high"] - found["low"] == pytest.approx(2 * 3.2182 * np.sqrt(5 / 3), rel=1e-3)
    wider = multiverse.welch(np.array([1.0, 2.0, 3.0]), np.array([3.0, 5.0, 7.0]), 10)
    assert wider["high"] - wider["low"] > found["high"] - found["low"]
    assert not multiverse.welch(np.array([1.0]), np.array([3.0, 5.0]), 1)["decides"]


def test_the_interval_of_a_share_is_exact():
    """None of n: up to 1 - 0.025 ** (1 / n)."""
    none = multiverse.share(np.zeros(10, dtype=bool))
    assert none == {"held": 0, "of": 10, "low": 0.0, "high": round(1 - 0.025**0.1, 3)}
    assert multiverse.share(np.ones(10, dtype=bool))["low"] == round(0.025**0.1, 3)


def test_a_bound_holds_inside_and_is_measured_from_its_end():
    found = pd.DataFrame({"a": [0.9, 1.0, 1.2]})
    test = {"label": "a", "expr": "a", "at_least": 0.95, "at_most": 1.1, "least": 0.05}
    assert multiverse.shows(test, found).tolist() == [False, True, False]
    assert multiverse.in_halves(test, found) == pytest.approx([-1.0, 1.0, -2.0])


def test_arrivals_are_compared_draw_by_draw():
    """Most draws never arrive; where one of both does, the effect is known all the same."""
    found = pd.DataFrame({"a": [np.nan, np.nan, 5.0], "b": [np.nan, np.nan, np.nan], "end": 50.0})
    test = {"label": "", "expr": "a / b", "kind": "arrivals", "below": 1.0, "paper": 0.5}
    x = multiverse.effects_of(test | {"horizon": "end"}, found)
    assert np.isnan(x[:2]).all() and x[2] == pytest.approx(np.log(10))


def test_a_claim_whose_verdict_and_share_disagree_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCLUST_FIGURES", str(tmp_path))
    assert multiverse.disagreements("toy", {"c1": "reproduced"}) == []
    drawn, found = toy_frames()
    claims = multiverse.judged(toy(), drawn, found, found[:1])
    (tmp_path / "readings").mkdir()
    content = {"paper": "toy", "draws": 9, "planned": 64, "tier": "quick", "claims": claims}
    (tmp_path / "readings" / "toy.json").write_text(json.dumps(content))
    assert multiverse.disagreements("toy", {"c1": "reproduced"}) == []  # 4 of 9 may be a half
    for held, verdict in ((1, "reproduced"), (8, "not reproduced")):
        claims[0]["sign"] = multiverse.share(np.arange(9) < held)
        (tmp_path / "readings" / "toy.json").write_text(json.dumps(content))
        said = f"[c1](#c1) is {verdict}, but holds in {held} of 9 readings."
        assert multiverse.disagreements("toy", {"c1": verdict}) == [said]
        assert multiverse.disagreements("toy", {"c1": "open"}) == []
    claims[0]["sign"] = multiverse.share(np.arange(9) < 4)
    (tmp_path / "readings" / "toy.json").write_text(json.dumps(content))
    assert multiverse.held("toy") == {"c1": "4 of 9"}
    sentence = multiverse.sentence("toy")
    assert sentence.startswith(
        "0 of 1 claims hold in most of 9 readings of what it leaves open (64"
    )
    assert "Most depends on rate 3 in place of 1" in sentence
    assert "in 0 of 3 readings, with ours in 3 of 3" in sentence
    assert multiverse.source(content).startswith("toy · 9 of 64 planned readings")
    told = "It holds in 4 of 9 other readings at tier quick, one seed each (3 of 6 whose baseline "
    told += 'is right); most depends on rate (3 in place of 1: "A minus B" holds in 0 of 3, with '
    told += "ours in 3 of 3)."
    assert multiverse.tried("toy", "c1") == told
    claims[0]["controlled sign"] = multiverse.share(np.zeros(0, bool))
    (tmp_path / "readings" / "toy.json").write_text(json.dumps(content))
    assert f"one seed each ({multiverse.ASTRAY}); most" in multiverse.tried("toy", "c1")
    assert multiverse.sentence("toy") == (
        f"Of 9 readings of what it leaves open {multiverse.ASTRAY} (tier quick)."
    )
    claims.append(dict(claims[0], id="c2"))
    claims[0]["controlled sign"] = multiverse.share(np.ones(1, bool))
    (tmp_path / "readings" / "toy.json").write_text(json.dumps(content))
    assert multiverse.sentence("toy").startswith("0 of 1 claims hold")
    assert "; for 1 more no reading has the baseline where" in multiverse.sentence("toy")
    claims.pop()
    (tmp_path / "readings" / "toy.json").write_text(json.dumps(content))
    assert multiverse.tried("toy", "c2") == multiverse.tried("other", "c1") == ""
    row = multiverse.table(content).iloc[0]
    assert (
        row["holds in"] == "4 of 9 [14, 79] %"
        and "in 0 of 3 (3 of 3 with ours)" in row["what decides"]
    )


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Readings that need no training; the seeds and values of those that were run."""
    done = []

    def measured(paper, settings, seed, jobs, tier):
        done.append((seed, settings["rate"]))
        return {"seed": seed, "settings": settings, "measures": {"a": 1.0, "b": settings["rate"]}}

    monkeypatch.setenv("FEDCLUST_FIGURES", str(tmp_path))
    monkeypatch.setattr(multiverse, "measured", measured)
    monkeypatch.setattr(measuring, "reads", lambda key: frozenset({"rate", "rounds", "seeds"}))
    return done


def test_what_is_there_is_not_run_again(runs):
    drawn, *_ = multiverse.readings(toy(), 6, 1, print)
    ours = {(seed, 1.0) for seed in range(multiverse.OURS)}
    assert len(runs) == len({*runs}) and {*runs} == {*enumerate(drawn["rate"])} | ours
    count = len(runs)
    multiverse.readings(toy(), 6, 1, print)
    assert len(runs) == count
    drawn, found, _ = multiverse.readings(toy(), 9, 1, print)
    assert runs[count:] and {seed for seed, _ in runs[count:]} <= {6, 7, 8}
    assert found["b"].tolist() == drawn["rate"].tolist()


def test_a_reading_that_is_added_runs_only_what_takes_it(runs):
    before, *_ = multiverse.readings(toy(), 30, 1, print)
    runs.clear()
    after, *_ = multiverse.readings(toy('  { value = 4.0, reason = "r" },\n'), 30, 1, print)
    assert {rate for _, rate in runs} == {4.0} and 5 <= len(runs) <= 10
    same = before["rate"] == after["rate"]
    assert (after["rate"][~same] == 4.0).all() and same.sum() == 30 - len(runs)


def test_another_size_is_another_reading(runs):
    multiverse.readings(toy(), 4, 1, print)
    count = len(runs)
    text = SETTING.replace("[[setting]]", "sizes = { rounds = 9 }\n[[setting]]", 1)
    paper = papers.check(tomllib.loads(TOML.replace("[[table]]", text + "[[table]]", 1)), "t.toml")
    multiverse.readings(paper, 4, 1, print)
    assert len(runs) == 2 * count


def test_draws_take_our_value_and_the_others():
    assert multiverse.values(toy()) == {"rate": [1.0, 2.0, 3.0]}
    taken = [draw["rate"] for draw in draws(multiverse.values(toy()), 30)]
    assert all(8 <= taken.count(value) <= 12 for value in (1.0, 2.0, 3.0))


def test_a_curve_shows_every_draw_and_every_value(tmp_path, monkeypatch):
    drawn, found = toy_frames()
    claims = multiverse.judged(toy(), drawn, found, found[:2])
    content = {"draws": 9, "drawn": drawn.to_dict("list"), "values": multiverse.values(toy())}
    above, below = multiverse.curve(content, claims[0]).axes
    points = np.concatenate([line.get_ydata() for line in above.lines[:2]])
    assert sorted(points) == pytest.approx(sorted(np.divide(AHEAD, 0.05)))
    assert [label.get_text() for label in below.get_yticklabels()] == ["rate 1", "rate 2", "rate 3"]
    ticks = [line for line in below.lines if line.get_marker() == "|"]
    assert sum(len(line.get_xdata()) for line in ticks) == 9


class Page:
    """What a notebook's report is asked to show."""

    def __init__(self):
        self.paper, self.shown = toy(), {}

    def table(self, name, frame, caption, source):
        self.shown[name] = frame, caption

    def figure(self, name, fig, caption):
        self.shown[name] = fig, caption


def test_a_notebook_shows_the_table_and_a_curve_for_each_headline_claim(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCLUST_FIGURES", str(tmp_path))
    said: list = []
    monkeypatch.setattr("IPython.display.display", said.append)
    page = Page()
    multiverse.section(page)
    assert "make readings KEYS=toy" in said[0].data and not page.shown
    drawn, found = toy_frames()
    frames = drawn, found, found[:1]
    monkeypatch.setattr(multiverse, "readings", lambda *_: frames)
    written = multiverse.publish(toy(), 9, 1, print)
    assert [path.name for path in written] == ["toy.json", "toy-c1.svg", "toy-c1.png"]
    multiverse.section(page)
    frame, _ = page.shown["table-extra-multiverse"]
    assert frame["holds in"].tolist() == ["4 of 9 [14, 79] %"]
    assert "holds in 4 of 9" in page.shown["fig-extra-multiverse-c1"][1]
