"""Numbers and verdicts in words: one plain sentence for a claim."""

import math
from collections import Counter
from collections.abc import Collection
from typing import Any

ORDER = ("reversed", "refuted", "absent", "open", "weaker", "holds", "exact")  # worst first


def number(value: float, digits: int | None = None) -> str:
    """A number with so many places, by default as many as its size asks for.

    >>> [number(x) for x in (0.12345, 12.345, 1256.6, 3.0, 4e-06, 9e7)]
    ['0.123', '12.3', '1,257', '3', '4e-06', '9e+07']
    """
    if not math.isfinite(value):
        return "not known"
    if digits is None:
        if value and not 1e-3 <= abs(value) < 1e7:
            return f"{value:.3g}"
        digits = 0 if float(value).is_integer() else places(abs(value))
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def places(size: float) -> int:
    """So many places that a number of this size has three digits, at most three."""
    return min(3, max(0, 2 - math.floor(math.log10(size)))) if size > 0 else 3


def ranged(mean: float, low: float, high: float, digits: int | None = None) -> str:
    """An estimate with its interval, which decides how many places there are.

    >>> ranged(0.0592, 0.0402, 0.0782), ranged(12.34, 10.1, 14.6), ranged(3, 3, 3)
    ('0.059 [0.040, 0.078]', '12.3 [10.1, 14.6]', '3')
    """
    if math.isclose(low, high, abs_tol=1e-12):  # the same on every seed, but for rounding
        return number(mean, digits)
    if digits is None and max(abs(low), abs(high)) < 1e4:
        digits = places(max((high - low) / 2, 1e-2) * 10)
    return f"{number(mean, digits)} [{number(low, digits)}, {number(high, digits)}]"


def span(counts: Collection[int], thing: str) -> str:
    """From the smallest count to the largest.

    >>> span([200], "round"), span([2000, 40], "round"), span([1], "seed")
    ('200 rounds', '40 to 2,000 rounds', '1 seed')
    """
    ends = [f"{end:,}" for end in sorted({min(counts), max(counts)})]
    return f"{' to '.join(ends)} {thing}{'s' * (max(counts) != 1)}"


def shown(claim: dict[str, Any]) -> str:
    """The verdict; in brackets where the baseline is not where the paper's was."""
    word = str(claim["verdict"])
    return word if claim["regime"] == "paper" else f"({word})"


def counted(claim: dict[str, Any]) -> list[dict[str, Any]]:
    """The tests that make a claim's verdict."""
    return [test for test in claim["tests"] if not test["beside"] and not test["same_as"]]


def deciding(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The test on which a claim depends: the worst one, and of these the smallest."""
    return min(parts, key=lambda t: (ORDER.index(t["part"]), (t["scaled"] or [0.0])[0]))


def why(parts: list[dict[str, Any]], tests: list[dict[str, Any]], regime: str) -> str:
    """One sentence: how many tests have which result, the deciding one, and any limits."""
    tally = Counter(t["part"] for t in parts)
    said = [", ".join(f"{tally[part]} of {len(parts)} {part}" for part in ORDER if tally[part])]
    said = [*said * (len(parts) > 1), sentence(deciding(parts))]
    said += [f"{t['label']} is the same as {t['same_as']}" for t in tests if t["same_as"]]
    said += [f"outside the paper's regime: {regime}"] * (regime != "paper")
    return "; ".join(said)


def effect(test: dict[str, Any]) -> str:
    """A test's effect with its interval, or the number of seeds that show it."""
    if test["shown_on"] is not None:
        value = "" if test["part"] == "exact" else f"{number(test['effect'])} "
        return f"{value}on {test['shown_on']} of {test['seeds']} seeds"
    if not math.isfinite(test["effect"]):
        return "not known"
    if not math.isfinite(test["low"]) or not math.isfinite(test["high"]):
        return number(test["effect"])
    return ranged(test["effect"], test["low"], test["high"])


def wanted(needs: int) -> str:
    """How many seeds would decide."""
    return f"{needs if needs <= 1000 else 'more than 1,000'} seeds would decide"


def sentence(test: dict[str, Any]) -> str:
    """A test's effect, its interval or count, the printed size, and its result."""
    seeds = "" if test["shown_on"] is not None else f" over {test['seeds']} seeds"
    printed = "" if test["paper"] is None else f", the paper has {number(test['paper'])}"
    needs = f", {wanted(test['needs'])}" if test["needs"] else ""
    called = test["size"] or test["part"]
    return f"{test['label']}: {effect(test)}{seeds}{printed}{needs} ({called})"
