"""What the verdicts add up to."""

import json
from itertools import pairwise

import pytest

from fedclust.report import forest, scoreboard

README = "# Title\n\n<!-- scoreboard -->\nold\n<!-- /scoreboard -->\n\nThe rest.\n"
RULES = "<!-- verdicts -->\nold\n<!-- /verdicts -->\n"


def test_of(part="holds", scaled=(1.0, 0.5, 1.5), **more):
    return {
        "label": "A minus B",
        "part": part,
        "size": None,
        "effect": 0.1,
        "low": 0.05,
        "high": 0.15,
        "seeds": 5,
        "needs": 13 if part == "open" else None,
        "paper": 0.1,
        "least": None,
        "shown_on": None,
        "scaled": list(scaled),
        "beside": False,
        "same_as": None,
        "regime": "paper",
        **more,
    }


test_of.__test__ = False  # a helper, no test


def claim(name, verdict, regime="paper", ours=False, tests=()):
    said = {"id": name, "short": f"short {name}", "text": f"claim {name} | {verdict}"}
    said |= {"where": "Table I", "figure": ["table1"], "verdict": verdict, "regime": regime}
    tests = [] if verdict == "untested" else list(tests) or [test_of()]
    return said | {"ours": ours, "why": "a = 1,\nb", "tests": tests}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "README.md").write_text(README + RULES)
    outside = "FedAvg is 0.1, the paper's 0.8"
    made = {
        ("paper", "dcfl"): [
            claim("c0", "reproduced"),
            claim("c1", "open", tests=[test_of("open"), test_of()]),
            claim("c2", "not reproduced"),
            claim("c3", "reproduced", outside),
            claim("c4", "reproduced", ours=True),
            claim("c5", "weaker"),
        ],
        ("quick", "dcfl"): [
            claim("c0", "reproduced"),
            claim("c1", "reproduced"),
            claim("c2", "in part"),
            claim("c3", "reproduced"),
            claim("c5", "open"),
        ],
        ("paper", "joint"): [claim("c0", "untested")],
        ("quick", "joint"): [claim("c0", "untested")],
        ("smoke", "dcfl"): [claim("c0", "not reproduced")],
    }
    for (tier, key), claims in made.items():
        folder = tmp_path / "figures" / tier / key
        folder.mkdir(parents=True)
        facts = {"paper": key, "tier": tier, "seeds": [0, 1, 2], "data": ["mnist"], "stand_in": []}
        (folder / "verdicts.json").write_text(json.dumps(facts | {"claims": claims}))
    return tmp_path


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_a_row_has_the_verdict_of_the_papers_sizes_and_what_quick_says(project):
    rows = {(row["paper"], row["id"]): row for row in scoreboard.rows(project)}
    quick = {name: row["quick"] for name, row in rows.items()}
    assert quick == {
        ("dcfl", "c0"): "agrees",
        ("dcfl", "c1"): "cannot see",  # open at the paper's sizes
        ("dcfl", "c2"): "disagrees",
        ("dcfl", "c3"): "cannot see",  # outside the paper's regime
        ("dcfl", "c4"): "cannot see",  # not there
        ("dcfl", "c5"): "cannot see",  # open at quick
        ("joint", "c0"): "cannot see",
    }
    assert rows["dcfl", "c1"]["needs"] == 13
    for name in ("text", "where", "figure", "regime", "effect", "interval", "printed", "link"):
        assert name in rows["dcfl", "c0"]


def test_a_rule_says_what_quick_cannot_see():
    both = claim("c0", "reproduced")
    assert scoreboard.agreement(both, both) == "agrees"
    assert scoreboard.agreement(both, both, "two steps per round") == "cannot see"


def test_a_line_per_paper_adds_up(project):
    head, _, dcfl, joint, _, said = scoreboard.board(scoreboard.rows(project)).splitlines()
    count = dict(zip(cells(head), cells(dcfl), strict=True))
    assert count["claims"] == "5"  # our own question is not counted
    assert count["reproduced"] == count["weaker"] == count["open"] == "1"
    assert count["outside the regime"] == "1"
    assert said.startswith("A run at tier quick agrees with 1 of these 6 verdicts, cannot see 4")
    assert said.endswith("and disagrees with 1.")
    words = [*scoreboard.VERDICTS, scoreboard.OUTSIDE]
    assert sum(int(count[word] or 0) for word in words) == 5
    assert dict(zip(cells(head), cells(joint), strict=True))["untested"] == "1"


def test_the_readme_has_the_sentence_that_opens_each_page(project):
    path = project / "figures" / "paper" / "dcfl" / "verdicts.json"
    said = json.loads(path.read_text()) | {"findings": ["It is so by 0.1.", "And more."]}
    path.write_text(json.dumps(said))
    readme = project / "README.md"
    readme.write_text(f"<!-- findings -->\n<!-- /findings -->\n{readme.read_text()}")
    scoreboard.publish(project)
    line = "- [DCFL](replications/executed/paper/dcfl.ipynb): It is so by 0.1.\n"
    assert f"<!-- findings -->\n{line}<!-- /findings -->" in readme.read_text()


def test_every_claim_is_one_line(project):
    lines = scoreboard.claims(scoreboard.rows(project)).splitlines()[2:]
    assert len(lines) == 7
    assert lines[0].startswith("| dcfl | c0 | claim c0 \\| reproduced | Table I | **reproduced** |")
    assert "0.1 [0.05, 0.15]" in lines[0] and "a = 1, b" in lines[0]
    assert "**(reproduced)**" in lines[3] and "(our question)" in lines[4]


def test_publish_writes_one_scoreboard_and_the_readmes_parts(project):
    written = scoreboard.publish(project)
    names = {path.relative_to(project).as_posix() for path in written}
    assert names == {"README.md", "figures/scoreboard.json", "figures/scoreboard.md"}
    text = (project / "README.md").read_text()
    assert text.startswith("# Title\n\n<!-- scoreboard -->\n| paper") and "\nold\n" not in text
    assert (
        scoreboard.RULE in text
        and scoreboard.RULE in (project / "figures/scoreboard.md").read_text()
    )
    content = json.loads((project / "figures/scoreboard.json").read_text())
    assert content["claims"] == scoreboard.shipped(project) == scoreboard.rows(project)
    assert content["tallies"]["dcfl"]["claims"] == 5
    scoreboard.publish(project)
    assert (project / "README.md").read_text() == text  # nothing grows


def test_a_readme_without_markers_is_left_alone(project):
    (project / "README.md").write_text("plain")
    scoreboard.publish(project)
    assert (project / "README.md").read_text() == "plain"


def test_a_run_says_what_it_makes_of_the_shipped_verdicts(project):
    assert scoreboard.shipped(project) == []
    scoreboard.publish(project)
    said = scoreboard.summary(scoreboard.shipped(project), "quick", project).splitlines()
    assert said[0] == "Of 6 shipped verdicts this run at tier quick"
    assert said[1].split() == ["agrees", "1"]
    assert said[2].split(maxsplit=3)[:3] == ["cannot", "see", "4"] and "dcfl c1 c3 c5" in said[2]
    assert said[3].split() == ["disagrees", "1"]
    assert said[4].strip().startswith("dcfl c2 (shipped not reproduced, here in part): claim c2")


def test_verdicts_that_moved_are_named(project):
    folder = project / "figures" / "quick" / "dcfl"
    standing = scoreboard.known(folder / "verdicts.json")
    now = {"c0": claim("c0", "open"), "c1": claim("c1", "reproduced"), "c9": claim("c9", "open")}
    assert scoreboard.moved(standing, now) == ["c0 was reproduced, is open: claim c0 | open"]
    assert scoreboard.moved({}, now) == [] == scoreboard.moved(standing, standing)


def test_verdicts_that_are_missing_or_damaged_keep_nobody_from_making_them(project):
    path = project / "figures" / "quick" / "dcfl" / "verdicts.json"
    assert scoreboard.known(path.with_name("none.json")) == {}
    for damaged in ("{", json.dumps({"paper": "dcfl", "claims": [{}], "seeds": [], "data": []})):
        path.write_text(damaged)
        assert scoreboard.known(path) == {}


def test_the_forest_has_every_counted_effect(project):
    sized, others = (forest.tests(project, printed) for printed in (True, False))
    assert len(sized) == 7 and others == []
    for path in forest.draw(project):
        assert path.exists() and path.stem == "forest"


def test_the_forests_parts_differ_in_grey():
    def grey(color):
        red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    lightness = sorted(grey(color) for color, _ in forest.LOOKS.values())
    assert all(b - a > 10 for a, b in pairwise(lightness))
    assert len({marker for _, marker in forest.LOOKS.values()}) == len(forest.LOOKS)
