"""The rule that judges claims: every row by hand, another library, a simulation."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, t

from fedclust.report import verdicts
from fedclust.report.verdicts import RuleError, interval, judge, judge_test


def judged(values, parts=1, **test):
    return judge_test({"expr": "x", **test}, pd.DataFrame({"x": np.asarray(values, float)}), parts)


def claims(tests, controls=(), **more):
    claim = {"id": "c", "text": "said", "where": "Sec. 1", "test": tests, **more}
    known = {control["id"]: control for control in controls}
    return SimpleNamespace(key="key", claims={"c": claim}, controls=known)


def spread(mean, half, n=5):
    """Values whose 95 % interval is [mean - half, mean + half]."""
    x = np.linspace(-1, 1, n)
    return mean + half * x / (t.ppf(0.975, n - 1) * x.std(ddof=1) / math.sqrt(n))


# --- one test -------------------------------------------------------------------------------------


def test_interval_by_hand():
    # mean 0.9, s = 0.1, t(2) = 4.303: half = 4.303 * 0.1 / sqrt(3) = 0.2484
    assert interval([0.8, 0.9, 1.0]) == pytest.approx((0.9, 0.6516, 1.1484), abs=1e-4)
    assert interval([0.8, np.nan, 1.0, 0.9])[1] == pytest.approx(0.6516, abs=1e-4)
    assert interval([0.3]) == (0.3, -math.inf, math.inf)


@pytest.mark.parametrize(
    ("mean", "half", "part", "size"),
    [
        (0.10, 0.03, "holds", "as printed"),  # [0.07, 0.13], printed 0.10, h = 0.05
        (0.06, 0.03, "holds", "smaller"),  # [0.03, 0.09]
        (0.20, 0.05, "holds", "larger"),  # [0.15, 0.25]
        (0.02, 0.01, "weaker", "smaller"),  # [0.01, 0.03]
        (0.01, 0.02, "absent", None),  # [-0.01, 0.03]
        (-0.05, 0.02, "reversed", None),  # [-0.07, -0.03]
        (0.03, 0.04, "open", None),  # [-0.01, 0.07]
    ],
)
def test_the_four_places_of_an_effect(mean, half, part, size):
    found = judged(spread(mean, half), paper=0.10)
    assert (found["part"], found["size"]) == (part, size)
    assert [found["low"], found["high"]] == pytest.approx([mean - half, mean + half])
    assert (found["needs"] is None) == (part != "open")
    assert found["scaled"] == pytest.approx([10 * mean, 10 * (mean - half), 10 * (mean + half)])
    mirrored = judged(-spread(mean, half), paper=-0.10, below=0.0)
    assert (mirrored["part"], mirrored["size"]) == (part, size)
    shown = [mirrored["effect"], mirrored["low"], mirrored["high"]]  # as the paper prints it
    assert shown == pytest.approx([-mean, -mean - half, -mean + half])


def test_least_where_no_size_is_printed():
    assert judged(spread(0.03, 0.02), least=0.02)["part"] == "holds"
    assert judged(spread(0.008, 0.004), least=0.02)["part"] == "weaker"
    assert judged(spread(0.03, 0.02), least=0.02)["size"] is None
    with pytest.raises(RuleError, match="no mark"):
        judged([1.0, 2.0])
    with pytest.raises(RuleError, match="no mark"):
        judged([1.0, 2.0], paper=-0.1)  # the printed size contradicts the claim


def test_needs_is_what_the_formula_says():
    x = spread(0.03, 0.04, 5)  # t s = 0.04 sqrt(5); (2 * 0.04 * sqrt(5) / 0.05)^2 = 12.8
    assert judged(x, paper=0.10)["needs"] == 13
    assert judged([0.1], paper=0.10)["part"] == "open"
    assert judged([0.1], paper=0.10)["needs"] is None  # one seed has no spread


def test_many_parts_refute_less_easily():
    x = spread(0.01, 0.03, 5)  # [-0.02, 0.04]; at 1 - 0.05/10 it reaches beyond 0.05
    assert judged(x, paper=0.10)["part"] == "absent"
    assert judged(x, paper=0.10, parts=10)["part"] == "open"
    assert judged(spread(0.1, 0.03), paper=0.10, parts=10)["part"] == "holds"


def test_bounds_ask_for_the_whole_interval():
    bound = {"at_least": 0.95, "paper": 1.0}
    assert judged(spread(0.98, 0.02), **bound)["part"] == "holds"
    assert judged(spread(0.96, 0.02), **bound)["part"] == "open"  # the mean alone says nothing
    assert judged(spread(0.90, 0.02), **bound)["part"] == "refuted"
    both = {"at_least": -0.03, "at_most": 0.03}
    assert judged(spread(0.01, 0.01), **both)["part"] == "holds"
    assert judged(spread(0.05, 0.01), **both)["part"] == "refuted"
    assert judged(spread(-0.02, 0.02), **both)["needs"] > 5


def test_no_spread_counts_seeds():
    assert judged([2.0] * 10, least=1.0)["part"] == "open"
    assert judged([2.0] * 10, least=1.0)["needs"] == 11
    assert judged([2.0] * 11, least=1.0)["part"] == "holds"
    assert judged([0.5] * 11, least=1.0)["part"] == "weaker"
    assert judged([0.0] * 5, least=1.0)["part"] == "absent"
    assert judged([-2.0] * 5, least=1.0)["part"] == "reversed"
    assert judged([1.0] * 5, at_least=0.95, paper=1.0)["part"] == "open"
    assert judged([0.5] * 5, at_least=0.95, paper=1.0)["part"] == "refuted"
    assert judged([2.0] * 4, least=1.0)["shown_on"] == 4


@pytest.mark.parametrize(
    ("k", "n"), [(11, 11), (10, 10), (10, 11), (0, 3), (0, 2), (1, 5), (17, 20)]
)
def test_counts_are_clopper_and_pearsons(k, n):
    shows = np.arange(n) < k
    low = binomtest(k, n).proportion_ci(0.90, "exact").low
    high = binomtest(k, n).proportion_ci(0.90, "exact").high
    assert verdicts.count(shows) == (
        "holds" if low >= 0.75 else "refuted" if high < 0.75 else "open"
    )


def test_kind_count_misses_what_is_not_there():
    assert judged([1.0] * 12 + [np.nan] * 8, kind="count")["part"] == "open"
    assert judged([1.0] * 12 + [np.nan] * 8, kind="count")["shown_on"] == 12


def test_ratios_are_judged_by_their_logarithm():
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0, 3.0, 1.5], "b": [2.0, 4.4, 7.9, 6.1, 3.0]})
    found = judge_test({"expr": "a / b", "kind": "ratio", "below": 1.0, "paper": 0.5}, frame)
    mean, low, high = interval(np.log(frame.b / frame.a))
    assert (found["part"], found["size"]) == ("holds", "as printed")
    assert [found["effect"], found["low"], found["high"]] == pytest.approx(
        np.exp([-mean, -high, -low])
    )
    # h is half of the printed fall, 0.75: a fall to 0.9 is weaker, no fall is absent
    for factor, part in ((0.9, "weaker"), (1.0, "absent"), (1.2, "reversed")):
        other = pd.DataFrame({"a": factor * frame.b * np.exp(spread(0, 0.02)), "b": frame.b})
        test = {"expr": "a / b", "kind": "ratio", "below": 1.0, "paper": 0.5}
        assert judge_test(test, other)["part"] == part
    negative = frame.assign(a=-frame.a)
    assert judge_test({"expr": "a / b", "kind": "ratio", "least": 1.1}, negative)["part"] == "open"


def test_ratios_that_agree_on_every_seed_are_counted():
    ratio = {"kind": "ratio", "paper": 2.0}
    frame = pd.DataFrame({"a": [2.0] * 11, "b": [1.0] * 11, "c": [1.9] * 11})
    for expr, part in (("a / b", "holds"), ("a / c", "weaker"), ("b / a", "reversed")):
        assert judge_test({"expr": expr, **ratio}, frame)["part"] == part
    assert judge_test({"expr": "b / b", **ratio}, frame)["part"] == "absent"


def test_runs_that_never_arrive_are_not_dropped():
    test = {"expr": "slow / fast", "kind": "arrivals", "paper": 100.0, "horizon": 80}
    frame = pd.DataFrame({"slow": [80, np.nan, 60, 70, np.nan], "fast": [1, 1, 1, 1, 1.0]})
    found = judge_test(test, frame)
    expected = interval(np.log([80, 80, 60, 70, 80]))
    assert found["seeds"] == 5 and found["effect"] == pytest.approx(math.exp(expected[0]))
    assert found["part"] == "holds"
    late = frame.assign(fast=[79, 80, 1, np.nan, np.nan])
    assert judge_test(test, late)["seeds"] == 5
    nobody = frame.assign(slow=np.nan, fast=np.nan)
    assert judge_test(test, nobody)["part"] == "open"
    assert judge_test(test | {"horizon": "end"}, frame.assign(end=80.0)) == found | {}


def test_at_the_end_of_the_scale_seeds_are_counted():
    bound = {"at_least": 0.95, "paper": 1.0, "range": [0.0, 1.0]}
    x = [1.0, 1.0, 1.0, 1.0, 0.96]
    assert judged(x, **bound)["part"] == "open"  # five of five, an interval would have "held"
    assert judged(x, at_least=0.95, paper=1.0)["part"] == "holds"
    assert judged(x * 3, **bound)["part"] == "holds"
    assert judged([0.99, 0.9, 1.0, 0.98], **bound)["high"] == 1.0  # clipped to what is possible


def test_the_best_of_several_is_corrected():
    x = spread(0.05, 0.04, 5)
    assert judged(x, paper=0.10)["part"] == "holds"
    assert judged(x, paper=0.10, tried=5)["part"] == "open"
    assert judged(x, paper=0.10, tried=5)["low"] == pytest.approx(interval(x, 0.99)[1])


def test_exact_holds_or_does_not():
    assert judged([6.0, 6.0], at_least=6, exact=True)["part"] == "exact"
    assert judged([6.0, 5.0], at_least=6, exact=True)["part"] == "refuted"
    assert judged([0.1], exact=True)["part"] == "exact"


@pytest.mark.parametrize("seed", range(5))
def test_bounds_agree_with_statsmodels(seed):
    """Both one-sided tests at 2.5 %: the 95 % interval is inside the bounds."""
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 1, (2, 8))
    p, _, _ = weightstats.ttost_paired(a, b + 0.1 * seed, -1.5, 1.5)
    found = judged(a - b - 0.1 * seed, at_least=-1.5, at_most=1.5)
    assert (found["part"] == "holds") == (p < 0.025)


# --- one claim ------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "holds": spread(0.10, 0.03),
        "weak": spread(0.02, 0.01) ** 1,
        "absent": spread(0.001, 0.005)[::-1],
        "open": spread(0.03, 0.06)[[1, 0, 2, 4, 3]],
    }
)


@pytest.mark.parametrize(
    ("names", "verdict"),
    [
        ("holds", "reproduced"),
        ("holds weak", "weaker"),
        ("weak", "weaker"),
        ("holds absent", "in part"),
        ("weak absent open", "in part"),
        ("absent", "not reproduced"),
        ("absent open", "not reproduced"),
        ("holds open", "open"),
        ("open", "open"),
    ],
)
def test_a_claims_verdict(names, verdict):
    paper = claims([{"expr": name, "paper": 0.10} for name in names.split()])
    (found,) = judge(paper, FRAME)
    assert found["verdict"] == verdict and found["regime"] == "paper"
    assert found["why"] and "\n" not in found["why"]


def test_untested_says_why():
    paper = claims([{"expr": "holds", "paper": 0.1}])
    (found,) = judge(paper, FRAME, {"c": "no run reaches it"})
    assert (found["verdict"], found["why"]) == ("untested", "no run reaches it")
    with pytest.raises(RuleError, match="c9"):
        judge(paper, FRAME, {"c9": "?"})


def test_the_control_comes_first():
    control = {"id": "base", "label": "FedAvg", "expr": "level", "paper": 0.8, "chance": 0.1}
    paper = claims([{"expr": "holds", "paper": 0.10}], [control], control=["base"])
    for level, regime in ((0.8, True), (0.63, True), (0.97, True), (0.62, False), (0.98, False)):
        (found,) = judge(paper, FRAME.assign(level=level))  # 25 % of 0.7 is 0.175
        assert (found["regime"] == "paper") == regime
        assert (found["tests"][0]["size"] is not None) == regime
        assert found["verdict"] == "reproduced"
    assert found["regime"] == "FedAvg is 0.98, the paper's 0.8"


def test_a_baseline_that_makes_the_printed_size_impossible():
    test = {"expr": "a / b", "kind": "ratio", "paper": 100.0, "possible": "a"}
    frame = pd.DataFrame({"a": [15.0, 16.0, 14.0], "b": [2.0, 2.1, 1.9]})
    (found,) = judge(claims([test]), frame)
    assert found["regime"] == "the baseline leaves room for 15, the paper has 100"


def test_an_identical_comparison_is_named_and_not_counted():
    frame = FRAME.assign(same=FRAME["open"])
    tests = [{"expr": "open", "label": "to CFL", "paper": 0.1}]
    tests += [{"expr": "same", "label": "to FedAvg", "paper": 0.2}, {"expr": "holds", "paper": 0.1}]
    (found,) = judge(claims(tests), frame)
    assert [test["same_as"] for test in found["tests"]] == [None, "to CFL", None]
    assert "1 of 2 open" in found["why"] and "to FedAvg is the same as to CFL" in found["why"]


def test_what_is_beside_is_not_counted():
    tests = [{"expr": "holds", "paper": 0.1}, {"expr": "absent", "paper": 0.1, "beside": True}]
    (found,) = judge(claims(tests), FRAME)
    assert found["verdict"] == "reproduced" and found["tests"][1]["part"] == "absent"


def test_a_ratio_to_nothing_is_judged_without_a_warning():
    test = {"label": "a by b", "expr": "a / b", "kind": "ratio", "paper": 2.0}
    claim = claims([test], short="", figure=[], uncontrolled="a toy")
    measures = pd.DataFrame({"a": [0.7, 0.8, 0.9], "b": [0.0, 0.1, 0.2]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert judge(claim, measures)[0]["verdict"] == "open"
