"""Verdicts in words: one plain sentence for a claim."""

import math
from collections import Counter
from typing import Any

ORDER = ("reversed", "refuted", "absent", "open", "weaker", "holds", "exact")  # worst first


def shown(claim: dict[str, Any]) -> str:
    """The verdict; in brackets where the baseline is not where the paper's was."""
    word = str(claim["verdict"])
    return word if claim["regime"] == "paper" else f"({word})"


def deciding(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The test on which a claim depends: the worst one, and of these the smallest."""
    return min(parts, key=lambda t: (ORDER.index(t["part"]), (t["scaled"] or [0.0])[0]))


def why(parts: list[dict[str, Any]], tests: list[dict[str, Any]], regime: str) -> str:
    """One sentence: how many tests are what, the one that decides, and what stands in the way."""
    tally = Counter(t["part"] for t in parts)
    said = [", ".join(f"{tally[part]} of {len(parts)} {part}" for part in ORDER if tally[part])]
    said = [*said * (len(parts) > 1), sentence(deciding(parts))]
    said += [f"{t['label']} is the same as {t['same_as']}" for t in tests if t["same_as"]]
    said += [f"outside the paper's regime: {regime}"] * (regime != "paper")
    return "; ".join(said)


def sentence(test: dict[str, Any]) -> str:
    """A test's effect, its interval or count, the printed size, and what it is called."""
    if test["shown_on"] is not None:
        how = f" on {test['shown_on']} of {test['seeds']} seeds"
    else:
        spread = f" [{test['low']:.3g}, {test['high']:.3g}]" if math.isfinite(test["low"]) else ""
        how = f"{spread} over {test['seeds']} seeds"
    printed = "" if test["paper"] is None else f", the paper has {test['paper']:.3g}"
    needs = f", {test['needs']} seeds would decide" if test["needs"] else ""
    called = test["size"] or test["part"]
    return f"{test['label']}: {test['effect']:.3g}{how}{printed}{needs} ({called})"
