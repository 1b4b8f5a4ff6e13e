"""The box, the cards and the lines of verdicts."""

from fedclust.report import markup

TEST = {"label": "A minus B", "part": "absent", "size": None, "needs": None, "paper": 0.08}
TEST |= {"beside": False, "same_as": None, "scaled": [0.1], "shown_on": None, "seeds": 5}
TEST |= {"effect": 0.01, "low": -0.01, "high": 0.03}
CLAIM = {"id": "c1", "short": "accuracy", "text": "A beats B", "where": "Table I", "ours": False}
CLAIM |= {"figure": ["table1"], "verdict": "not reproduced", "regime": "paper", "tests": [TEST]}


def test_a_box_says_what_does_not_hold_and_by_how_much():
    said = markup.box("Tier paper.", "A does not beat B.", [CLAIM])
    assert said.splitlines()[0] == "> **A does not beat B.**"
    assert "- *Does not hold* (1): [c1](#c1) accuracy (0.010 [-0.010, 0.030])." in said
    outside = CLAIM | {"regime": "the baseline is elsewhere"}
    assert "(1): [c1](#c1) accuracy (not reproduced)." in markup.box("", "", [outside])
    holds = CLAIM | {
        "verdict": "reproduced",
        "tests": [TEST | {"part": "holds", "size": "smaller"}],
    }
    said = markup.box("", "", [holds])
    assert (
        "- *Holds* (1): [c1](#c1) accuracy (0.010 [-0.010, 0.030], smaller than printed)." in said
    )


def test_a_card_has_the_verdict_first_and_anchors_both_ways():
    said = markup.card(CLAIM, {"table1": "table 1"})
    assert said.startswith('<a id="c1"></a>**not reproduced** · c1 · A beats B.')
    assert "[table 1](#table1)" in said
    assert "| A minus B | absent | 0.010 [-0.010, 0.030] | 0.080 |" in said
    assert markup.line(CLAIM).startswith("[c1](#c1) **not reproduced**, accuracy: A minus B")


def test_a_card_tells_what_limits_its_verdict():
    twin = TEST | {"label": "A minus C", "same_as": "A minus B", "needs": 1200, "part": "open"}
    claim = CLAIM | {
        "tests": [TEST, twin],
        "regime": "B is 0.2, the paper's 0.6",
        "remark": "small",
    }
    said = markup.card(claim, {})
    assert said.startswith('<a id="c1"></a>**(not reproduced)**')
    assert "*A minus C* is the same as *A minus B* on every seed." in said
    assert "In brackets, because B is 0.2, the paper's 0.6." in said and said.endswith("Small.")
    assert "open, more than 1,000 seeds would decide" in said
    assert markup.card(claim | {"because": "B is too low."}, {}).endswith("**Why.** B is too low.")


def test_how_bugs_were_excluded_is_said_before_the_cards():
    said = markup.cards([CLAIM], {}, "Two checks\nby hand.")
    assert said.index("**Is it a bug of ours?** Two checks by hand.") < said.index('id="c1"')
    assert "bug" not in markup.cards([CLAIM], {})
