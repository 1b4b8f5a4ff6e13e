"""How a claim is judged. `RULE` is the rule, word for word as in the README and the notebooks.

What a test is, and its keys in papers/<key>.toml: effects.py.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv, stdtrit

from fedclust.report import words
from fedclust.report.effects import (
    RuleError,
    back,
    by_count,
    ended,
    is_bound,
    kind_of,
    marks,
    turn,
    values,
)
from fedclust.report.expressions import evaluate

if TYPE_CHECKING:
    from fedclust.report.papers import Paper

RULE = """\
Each test of a claim is an effect, one value per seed, turned so that the claim is positive. It has
two marks: 0, no effect, and h, half of what the paper printed. Where nothing is printed, h is the
smallest size that counts, given with its reason. The paired 95 % t interval over seeds decides. If
it is above 0, the test *holds*, or it is *weaker* if the interval is below h. Otherwise it is
*absent* if the interval is below h (*reversed* if it is below 0), and *open* if not; then we say
how many seeds would decide. A bound *holds* if the interval is inside it, is *refuted* if the
interval is outside, and is *open* otherwise. Ratios are judged by their logarithms. A run that
never arrives counts as arriving at its end. Where all seeds agree, or most are at the end of the
scale, we count seeds: eleven of eleven show that it is so in at least three of four runs. What has
no sampling in it is *exact* or refuted. In a claim of k tests, each refutes only at 1 - 0.05/k.

A claim is *reproduced* if all its tests hold, *weaker* if all hold or are weaker, *in part* if some
do and some are refuted, *not reproduced* if some are refuted and none holds, and *open* otherwise.
The control comes first: where the baseline is more than 25 % away from the printed level above
chance, the verdict is in brackets, outside the paper's regime, and no sizes are compared."""

VERDICTS = ("reproduced", "weaker", "in part", "not reproduced", "open", "untested")
HOLDS, REFUTED = {"holds", "exact"}, {"absent", "reversed", "refuted"}
ERROR, MOST, NEAR = 0.05, 0.75, 0.25  # of a test; of runs, in a count; of a control's level
Estimate = Callable[[float], tuple[float, float, float]]  # error -> mean, low, high


def interval(samples: Any, level: float = 1 - ERROR) -> tuple[float, float, float]:
    """Mean and t interval over seeds; one seed alone says nothing about the spread.

    >>> [round(x, 3) for x in interval([0.8, 0.9, 1.0])]
    [0.9, 0.652, 1.148]
    """
    x = np.asarray(samples, dtype=float)
    x = x[~np.isnan(x)]
    if len(x) < 2:
        return (float(x[0]), -math.inf, math.inf) if len(x) else (math.nan, math.nan, math.nan)
    with np.errstate(invalid="ignore"):  # of an infinite logarithm nothing is known
        half = float(stdtrit(len(x) - 1, (1 + level) / 2) * x.std(ddof=1) / math.sqrt(len(x)))
    return float(x.mean()), float(x.mean()) - half, float(x.mean()) + half


def place(estimate: Estimate, half: float, parts: int = 1) -> str:
    """Where an effect is by its two marks, 0 and h."""
    (_, low, high), (_, _, highest) = estimate(ERROR), estimate(ERROR / parts)
    if low > 0:
        return "holds" if high >= half else "weaker"
    if highest < half:
        return "reversed" if highest < 0 else "absent"
    return "open"


def count(shows: Any, parts: int = 1) -> str:
    """Whether three of four runs show it, by how many of these do (Clopper and Pearson 1934)."""
    n, k = len(shows), int(np.sum(shows))
    low = betaincinv(k, n - k + 1, ERROR) if k else 0.0
    high = betaincinv(k + 1, n - k, 1 - ERROR / parts) if k < n else 1.0
    return "holds" if low >= MOST else "refuted" if high < MOST else "open"


def count_needed(shows: Any, parts: int = 1) -> int | None:
    """How many seeds decide a count if the same share of them shows it: eleven, if all agree."""
    share = float(np.mean(shows)) if len(shows) else 1.0
    counts = ((n, np.arange(n) < round(share * n)) for n in range(1, 500))
    return next((n for n, seen in counts if n > len(shows) and count(seen, parts) != "open"), None)


def seeds_needed(estimate: Estimate, n: int, half: float, parts: int = 1) -> int | None:
    """ceil((2 t s / h)^2): so many seeds make the interval shorter than h. None: no spread yet."""
    length = estimate(ERROR / parts)[2] - estimate(ERROR)[1]
    return math.ceil(n * (length / half) ** 2 - 1e-9) if math.isfinite(length) else None


def judge_test(test: dict[str, Any], measures: pd.DataFrame, parts: int = 1) -> dict[str, Any]:
    """A test's part and size, its effect with interval, and the seeds that would decide it."""
    (printed, half), x = marks(test), values(test, measures)
    x = x if kind_of(test) == "count" else x[~np.isnan(x)]  # a count misses what is not there

    def estimate(error: float) -> tuple[float, float, float]:
        return interval(x, 1 - error / test.get("tried", 1))

    mean, low, high = estimate(ERROR)
    least, most = test.get("at_least", -math.inf), test.get("at_most", math.inf)
    shows = (x >= least) & (x <= most) if is_bound(test) else x > 0
    counts = by_count(test, x)
    size, needs = None, None
    if test.get("exact"):
        part = "exact" if len(x) and shows.all() else "refuted"
    elif counts:
        part, needs = count(shows, parts), count_needed(shows, parts)
        if np.ptp(x) <= 1e-12 and kind_of(test) not in ("bound", "count"):  # sizes agree as well
            part = {"holds": "holds" if mean >= half else "weaker", "open": "open"}.get(
                part, "reversed" if mean < 0 else "absent"
            )
    elif is_bound(test):
        outside = estimate(ERROR / parts)[2] < least or estimate(ERROR / parts)[1] > most
        part = "holds" if least <= low and high <= most else "refuted" if outside else "open"
        near = min(half, abs(mean - least), abs(mean - most))
        needs = seeds_needed(estimate, len(x), near, parts)
    else:
        part, needs = place(estimate, half, parts), seeds_needed(estimate, len(x), half, parts)
        if printed is not None and part in ("holds", "weaker"):
            size = "smaller" if high < printed else "larger" if low > printed else "as printed"
    sizes = np.array([mean, low, high])
    effect, *ends = back(test, sizes).tolist()
    unit = math.nan if is_bound(test) else printed or half
    return {
        "label": test.get("label", test["expr"]),
        "expr": test["expr"],
        "kind": kind_of(test),
        "part": part,
        "size": size,
        "effect": effect,
        "low": min(ends),
        "high": max(ends),
        "seeds": int(np.sum(~np.isnan(x))),
        "needs": needs if part == "open" else None,
        "paper": test.get("paper"),
        "least": test.get("least"),
        "shown_on": int(shows.sum()) if counts or test.get("exact") else None,
        "scaled": (sizes / unit).tolist() if unit > 0 else None,
        "beside": bool(test.get("beside")),
    }


def regime(controls: list[dict[str, Any]], test: dict[str, Any], measures: pd.DataFrame) -> str:
    """Whether the baseline is where the paper's was: "paper", or the reason why not."""
    for control in controls:
        ours = float(ended(control, evaluate(control["expr"], measures), measures).mean())
        if "at_least" in control and not ours >= control["at_least"]:
            return f"{control['label']} is {ours:.3g}, needed is {control['at_least']:.3g}"
        level, chance = control.get("paper", ours), control.get("chance", 0.0)
        if not abs(ours - level) <= NEAR * abs(level - chance):
            return f"{control['label']} is {ours:.3g}, the paper's {level:.3g}"
    if "possible" in test:
        room = float(evaluate(test["possible"], measures).mean())
        if turn(test, room) < turn(test, test["paper"]):
            return f"the baseline leaves room for {room:.3g}, the paper has {test['paper']:.3g}"
    return "paper"


def verdict_of(parts: set[str]) -> str:
    """A claim's verdict from the parts of its tests."""
    if parts and parts <= HOLDS | {"weaker"}:
        return "weaker" if "weaker" in parts else "reproduced"
    if parts & REFUTED:
        return "in part" if parts & (HOLDS | {"weaker"}) else "not reproduced"
    return "open"


def doubtful(claim: dict[str, Any]) -> bool:
    """Whether it does not hold, holds in part, or its baseline is not where the paper's was."""
    return claim["verdict"] in ("in part", "not reproduced") or claim["regime"] != "paper"


def judge(
    paper: "Paper", measures: pd.DataFrame, untested: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Every claim with its verdict, its regime, its tests, and one plain sentence why."""
    untested = untested or {}
    if strange := untested.keys() - paper.claims.keys():
        names = ", ".join(sorted(strange))
        raise RuleError(f"untested names {names}: {paper.key} claims {', '.join(paper.claims)}")
    found = []
    for claim in paper.claims.values():
        entry = {name: claim.get(name, "") for name in ("id", "short", "text", "where", "figure")}
        entry |= {"ours": bool(claim.get("ours")), "verdict": "untested", "regime": "paper"}
        if claim["id"] in untested:
            found.append({**entry, "why": untested[claim["id"]], "tests": []})
            continue
        tests: list[dict[str, Any]] = []
        first: dict[bytes, str] = {}  # by its values, the label of a test
        for test in claim["test"]:
            counted = sum(not t.get("beside") for t in claim["test"])
            names = test.get("control", claim.get("control", []))
            with np.errstate(invalid="ignore"):  # a ratio to 0 is infinite, and tells nothing
                result = judge_test(test, measures, counted)
                x = values(test, measures)
                varies = np.ptp(x) > 1e-12
            result["regime"] = regime([paper.controls[name] for name in names], test, measures)
            result["size"] = result["size"] if result["regime"] == "paper" else None
            same = first.setdefault(x.tobytes(), result["label"]) if varies else None
            result["same_as"] = None if same == result["label"] else same
            tests.append(result)
        parts = [t for t in tests if not t["beside"] and not t["same_as"]]
        entry["verdict"] = verdict_of({t["part"] for t in parts})
        entry["regime"] = next((t["regime"] for t in parts if t["regime"] != "paper"), "paper")
        found.append({**entry, "why": words.why(parts, tests, entry["regime"]), "tests": tests})
    return found
