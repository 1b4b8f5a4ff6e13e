"""Findings: the sentences of papers/<key>.toml, with every number and direction measured."""

import re
from collections.abc import Collection
from typing import Any

import pandas as pd

from fedclust.report.expressions import ExpressionError, evaluate, parse
from fedclust.report.tables import spread
from fedclust.report.verdicts import interval
from fedclust.report.words import counted, deciding, effect

GAP = re.compile(r"\{([^{}?]+)(?:\?([^{}|]*)\|([^{}|]*)\|([^{}|]*))?\}")
CLAIM = re.compile(r"(c\d+\w*?)(?:\.(\d+))?$")


def filled(text: str, measures: pd.DataFrame, claims: list[dict[str, Any]]) -> str:
    """A finding with its gaps filled, so that no number or direction in it is written by hand.

    {expr} is the mean over seeds of an expression of measures, with its interval. {expr ? a | b |
    c} is a where the interval is above 0, b where it contains 0, and c where it is below. {c1} is
    the effect of claim c1's deciding test, {c1.2} that of its second; {c1 ? a | b | c} is a where
    the claim (or test) holds, perhaps weaker, b where it is open, and c where it does not hold.
    """
    by_id = {claim["id"]: claim for claim in claims}

    def fill(gap: re.Match[str]) -> str:
        name = gap[1].strip()
        chosen = [part.strip() for part in gap.groups()[1:] if part is not None]
        found = CLAIM.match(name)
        if found and found[1] in by_id:
            return of_claim(by_id[found[1]], found[2], chosen)
        samples = evaluate(name, measures)
        if not chosen:
            alone = name.isidentifier() and bool(samples.dropna().between(0, 1).all())
            return spread(samples, bounded=alone) or "not known"
        _, low, high = interval(samples)
        return chosen[0] if low > 0 else chosen[2] if high < 0 else chosen[1]

    return GAP.sub(fill, " ".join(text.split()))


def of_claim(claim: dict[str, Any], number: str | None, chosen: list[str]) -> str:
    """A gap that names a claim or one of its tests."""
    if not claim["tests"]:
        return chosen[1] if chosen else "not known"
    test = claim["tests"][int(number) - 1] if number else deciding(counted(claim))
    if not chosen:
        return effect(test)
    if number:
        outcome = {"open": 1, "holds": 0, "exact": 0, "weaker": 0}.get(test["part"], 2)
    else:
        outcome = {"open": 1, "reproduced": 0, "weaker": 0}.get(claim["verdict"], 2)
    return chosen[outcome]


def check(text: str, claims: Collection[str]) -> None:
    """An error if a gap is neither a claim nor an expression."""
    text = " ".join(text.split())
    for gap in GAP.finditer(text):
        name = gap[1].strip()
        found = CLAIM.match(name)
        if not (found and found[1] in claims):
            parse(name)
    if rest := re.search(r"[{}]", GAP.sub("", text)):
        gap_at = text[max(0, text.find(rest[0]) - 10) :][:40]
        raise ExpressionError(
            f"{gap_at!r}: a gap is {{expr}} or {{expr ? above | neither | below}}"
        )
