"""Verdicts in words: one plain sentence for a claim."""

import math
from collections import Counter
from typing import Any

ORDER = ("reversed", "refuted", "absent", "open", "weaker", "holds", "exact")  # worst first


def why(parts: list[dict[str, Any]], tests: list[dict[str, Any]]) -> str:
    """One sentence: how many tests are what, and the one that decides."""
    worst = min(parts, key=lambda t: (ORDER.index(t["part"]), (t["scaled"] or [0.0])[0]))
    tally = Counter(t["part"] for t in parts)
    said = [f"{tally[part]} of {len(parts)} {part}" for part in ORDER if tally[part]]
    same = [f"{t['label']} is the same as {t['same_as']}" for t in tests if t["same_as"]]
    return "; ".join([", ".join(said) if len(parts) > 1 else "", sentence(worst), *same]).lstrip(
        "; "
    )


def sentence(test: dict[str, Any]) -> str:
    spread = f" [{test['low']:.3g}, {test['high']:.3g}]" if math.isfinite(test["low"]) else ""
    if test["shown_on"] is not None:
        spread = f" on {test['shown_on']} of {test['seeds']} seeds"
    said = f"{test['label']}: {test['effect']:.3g}{spread}"
    if test["shown_on"] is None:
        said += f" over {test['seeds']} seeds"
    printed = "" if test["paper"] is None else f", the paper has {abs(test['paper']):.3g}"
    needs = f", {test['needs']} seeds would decide" if test["needs"] else ""
    return f"{said}{printed}{needs} ({test['size'] or test['part']})"
