"""Findings: gaps of a sentence, filled by hand."""

import pandas as pd
import pytest

from fedclust.report import findings

MEASURES = pd.DataFrame({"a": [0.80, 0.81, 0.82], "b": [0.10, 0.90, 0.50], "one": [3.0, 3.0, 3.0]})
TEST = {"beside": False, "same_as": None, "scaled": [1.0], "shown_on": None, "seeds": 3}
TEST |= {"effect": 0.5, "low": 0.4, "high": 0.6}
CLAIMS = [
    {"id": "c1", "verdict": "reproduced", "tests": [TEST | {"part": "holds"}]},
    {
        "id": "c2",
        "verdict": "in part",
        "tests": [TEST | {"part": "open"}, TEST | {"part": "weaker"}],
    },
    {"id": "c3", "verdict": "untested", "tests": []},
]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        # 0.80, 0.81, 0.82: half width 4.3027 * 0.01 / sqrt(3) = 0.0248
        ("it is {a}.", "it is 0.810 [0.785, 0.835]."),
        ("{100 * a} %", "81.0 [78.5, 83.5] %"),
        ("{one} rounds", "3 rounds"),
        ("{a - 0.5 ? above | level | below}", "above"),
        ("{a - b ? above | level | below}", "level"),
        ("{0.5 - a ? above | level | below}", "below"),
        ("by {c1}", "by 0.500 [0.400, 0.600]"),
        ("{c1 ? yes | open | no}{c2 ? yes | open | no}{c3 ? yes | open | no}", "yesnoopen"),
        ("{c2.1 ? yes | open | no} {c2.2 ? yes | open | no}", "open yes"),
        ("{c3}", "not known"),
    ],
)
def test_gaps(text, filled):
    findings.check(text, {"c1", "c2", "c3"})
    assert findings.filled(text, MEASURES, CLAIMS) == filled


@pytest.mark.parametrize("text", ["{a", "{a ? b}", "{import os}", "a}"])
def test_a_gap_that_cannot_be_filled_is_refused(text):
    with pytest.raises(ValueError):
        findings.check(text, set())
