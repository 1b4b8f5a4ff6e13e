"""What the verdicts add up to."""

import json

import pytest

from fedclust.report import scoreboard

README = "# Title\n\n<!-- scoreboard -->\nold\n<!-- /scoreboard -->\n\nThe rest.\n"


def claim(name, verdict):
    return {"id": name, "text": f"claim {name} | {verdict}", "where": "Table I", "verdict": verdict, "why": "a = 1,\nb"}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "README.md").write_text(README)
    for tier, key, words in [
        ("quick", "dcfl", ["reproduced", "reproduced", "inconclusive"]),
        ("quick", "joint", ["not reproduced", "untested"]),
        ("paper", "dcfl", ["direction"]),
        ("smoke", "dcfl", ["reproduced"]),
    ]:
        folder = tmp_path / "figures" / tier / key
        folder.mkdir(parents=True)
        content = {
            "paper": key, "tier": tier, "seeds": [0, 1, 2], "data": ["mnist"],
            "stand_in": ["mnist for emnist"] if key == "joint" else [],
            "claims": [claim(f"c{i}", word) for i, word in enumerate(words)],
        }  # fmt: skip
        (folder / "verdicts.json").write_text(json.dumps(content))
    return tmp_path


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_line_per_paper_counts_its_verdicts(project):
    head, _, dcfl, joint = scoreboard.scoreboard(project, "quick").splitlines()
    assert cells(head)[1:6] == ["reproduced", "direction", "inconclusive", "not reproduced", "untested"]
    assert cells(dcfl) == ["[dcfl](replications/executed/quick/dcfl.ipynb)", "2", "", "1", "", "", "3", "mnist"]
    assert cells(joint)[4:] == ["1", "1", "3", "mnist, stand-in: mnist for emnist"]


def test_every_claim_is_one_line(project):
    lines = scoreboard.claims(project, "quick").splitlines()[2:]
    assert len(lines) == 5
    assert lines[0] == "| dcfl | claim c0 \\| reproduced | Table I | reproduced | a = 1, b |"


def test_publish_fills_the_readme_between_its_markers_with_the_kept_tiers(project):
    written = scoreboard.publish(["quick", "paper"], project)
    text = (project / "README.md").read_text()
    assert text.startswith("# Title\n\n<!-- scoreboard -->\n") and text.endswith("<!-- /scoreboard -->\n\nThe rest.\n")
    assert "old" not in text and "Tier `quick`" in text and "Tier `paper`" in text and "smoke" not in text
    assert {path.relative_to(project).as_posix() for path in written} == {
        "README.md", "figures/quick/scoreboard.md", "figures/paper/scoreboard.md",
    }  # fmt: skip
    page = (project / "figures/quick/scoreboard.md").read_text()
    assert "(../../replications/executed/quick/dcfl.ipynb)" in page and page.count("| claim c") == 5
    scoreboard.publish(["quick", "paper"], project)
    assert (project / "README.md").read_text() == text  # nothing grows


def test_a_readme_without_markers_is_left_alone(project):
    (project / "README.md").write_text("plain")
    scoreboard.publish(["quick"], project)
    assert (project / "README.md").read_text() == "plain"


def test_verdicts_that_moved_are_named(project):
    folder = project / "figures" / "quick" / "dcfl"
    standing = scoreboard.known(folder / "verdicts.json")
    now = {"c0": claim("c0", "inconclusive"), "c1": claim("c1", "reproduced"), "c9": claim("c9", "reproduced")}
    assert scoreboard.moved(standing, now) == ["c0 was reproduced, is inconclusive: claim c0 | inconclusive"]
    assert scoreboard.moved({}, now) == [] == scoreboard.moved(standing, standing)


def test_verdicts_that_are_missing_or_damaged_keep_nobody_from_making_them(project):
    path = project / "figures" / "quick" / "dcfl" / "verdicts.json"
    assert scoreboard.known(path.with_name("none.json")) == {}
    for damaged in ("{", json.dumps({"paper": "dcfl", "claims": [{}], "seeds": [], "data": []})):
        path.write_text(damaged)
        assert scoreboard.known(path) == {}
