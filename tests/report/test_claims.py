"""The claims of the five papers: a mark and a control for each, one text for the rule."""

import json
import re
from collections import Counter

import pandas as pd
import pytest

from fedclust.paths import root
from fedclust.report import findings, markup, papers
from fedclust.report.effects import kind_of, marks
from fedclust.report.expressions import evaluate, parse
from fedclust.report.verdicts import RULE, doubtful

KEYS = papers.keys()
STATEMENTS = {  # counted in the papers: claims (without our questions), and what is left out
    "cafa": (12, 6),
    "dcfl": (17, 3),
    "fedac": (13, 2),
    "joint": (13, 3),
    "ocfl": (18, 4),
}


@pytest.mark.parametrize("key", KEYS)
def test_every_statement_is_a_claim_or_left_out_with_a_reason(key):
    paper = papers.load(key)
    claims = [claim for claim in paper.claims.values() if not claim.get("ours")]
    assert (len(claims), len(paper.left_out)) == STATEMENTS[key]
    assert all(entry["reason"] for entry in paper.left_out.values())


@pytest.mark.parametrize("key", KEYS)
def test_every_table_and_figure_is_judged_or_left_out(key):
    paper = papers.load(key)
    shown = {name for name, e in (paper.tables | paper.figures).items() if not e.get("extra")}
    shown.discard("table-calibration")  # ours: how the baseline was read
    judged = {name for claim in paper.claims.values() for name in claim["figure"]}
    assert shown <= judged | {name for entry in paper.left_out.values() for name in entry["figure"]}


@pytest.mark.parametrize("key", KEYS)
def test_no_test_without_a_mark_and_no_claim_on_training_without_a_control(key):
    paper = papers.load(key)
    labels = Counter()
    for claim in paper.claims.values():
        assert claim.get("control") or claim["uncontrolled"]
        for test in claim["test"]:
            half = marks(test)[1]
            assert half > 0 or test.get("exact") or kind_of(test) == "count"
            labels[claim["id"], test["label"]] += 1
    assert max(labels.values()) == 1  # a reader can tell the tests of a claim apart


@pytest.mark.parametrize("key", KEYS)
def test_a_mended_rule_says_when_and_why(key):
    for claim in papers.load(key).claims.values():
        for entry in claim.get("changed", []):
            assert entry["date"] >= "2026-11-20" and entry["before"] and entry["reason"]


@pytest.mark.parametrize("key", KEYS)
def test_seeds_are_planned_for_both_tiers(key):
    paper = papers.load(key)
    for tier in ("quick", "paper"):
        seeds = paper.at(tier, planned=True)["seeds"]
        assert len(seeds) == paper.seeds_planned[tier]["number"]
        assert {*paper.at(tier)["seeds"]} <= {*seeds}


def test_the_rule_is_one_text():
    assert RULE in (root() / "README.md").read_text(encoding="utf-8")
    assert RULE in markup.cards([], {})  # what every notebook shows


@pytest.mark.parametrize("key", KEYS)
def test_numbers_in_findings_are_measured_or_printed_in_the_paper(key):
    paper = papers.load(key)
    assert len(paper.findings) >= 4
    file = (root() / "papers" / f"{key}.toml").read_text(encoding="utf-8")
    rest = re.sub(r'(\[\[finding\]\].*?|because = )"""\n.*?"""', "", file, flags=re.S)
    known = {float(n) for n in re.findall(r"\d*\.\d+", rest)} | OURS
    texts = {name: finding["text"] for name, finding in paper.findings.items()}
    texts |= {name: claim.get("because", "") for name, claim in paper.claims.items()}
    for name, text in texts.items():
        said = findings.GAP.sub("", text)
        assert {float(n) for n in re.findall(r"\d*\.\d+", said)} <= known, name


@pytest.mark.parametrize("key", KEYS)
def test_a_claim_that_does_not_hold_as_printed_says_why(key):
    paper, folder = papers.load(key), root() / "figures" / "paper" / key
    measures = pd.read_csv(folder / "measures.csv", index_col="seed")
    judged = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))["claims"]
    for claim in filter(doubtful, judged):
        said = findings.filled(paper.claims[claim["id"]].get("because", ""), measures, judged)
        assert said and "not known" not in said, claim["id"]


@pytest.mark.parametrize("key", KEYS)
def test_checks_against_bugs_of_ours_are_there(key):
    paper = papers.load(key)
    texts = [claim.get("because", "") for claim in paper.claims.values()]
    named = re.findall(r"`(tests/[\w/.]+)`", " ".join([paper.about["excluded"], *texts]))
    assert len(named) >= 2 and all((root() / name).is_file() for name in named)


OURS = {0.75, 7.4}  # purity with an empty cluster; the factor of DCFL's distance, e^2


def printed_measures(key):
    """The measures that a paper's tables print, by the names that its claims use."""
    paper, found = papers.load(key), {}
    if key == "dcfl":
        columns = dict(zip(("final", "std", "average", "spread"), SPREADS, strict=True))
        for table in ("table1", "table2"):
            for (row, column), value in paper.printed(table).items():
                found |= {f"{row.lower()}_{w}": value for w, c in columns.items() if c == column}
    if key == "cafa":
        for (row, column), value in paper.printed("table4").items():
            found[f"code_{row.lower()}_{column[0]}"] = value
        for (row, column), value in paper.printed("table5").items():
            if column == "best":
                found[f"code_{row.lower()}_best"] = value
        for table in ("table2", "table3"):
            for (row, column), value in paper.printed(table).items():
                name = {"Acc": "accuracy", "Precision": "precision"}.get(column, column.lower())
                found[f"{name}_{row.replace(' + ', '_')}"] = value
    if key == "ocfl":
        for (row, column), value in paper.printed("table2").items():
            name = f"{row}_{column}".lower().replace("-", "").replace(" ", "_")
            found[name] = value
    return pd.DataFrame({name: [value] for name, value in found.items() if value != ""})


SPREADS = ("final mean", "final std", "average mean", "average std")


@pytest.mark.parametrize(("key", "least"), [("dcfl", 30), ("cafa", 30), ("ocfl", 14)])
def test_printed_sizes_are_what_the_printed_tables_say(key, least):
    paper, known, checked = papers.load(key), printed_measures(key), 0
    for claim in paper.claims.values():
        for entry in [*claim["test"], *(paper.controls[name] for name in claim.get("control", []))]:
            names = set(parse(entry["expr"]))
            if "paper" in entry and names <= set(known) and "_course" not in entry["expr"]:
                printed = float(evaluate(entry["expr"], known).iloc[0])
                assert entry["paper"] == pytest.approx(printed, abs=6e-3), (claim["id"], entry)
                checked += 1
    assert checked >= least
