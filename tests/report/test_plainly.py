"""What compiled code decides: verdicts with it and without it, side by side."""

import json

from fedclust.report import plainly


def test_verdicts_that_differ_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(plainly, "keys", lambda: ["toy"])
    monkeypatch.setattr(plainly, "root", lambda: tmp_path)
    monkeypatch.setattr(plainly, "figures", lambda: tmp_path / "figures")
    for folder, verdicts in (
        ("figures/quick/toy", {"c1": "reproduced", "c2": "open", "c3": "open"}),
        ("build/figures/plain/quick/toy", {"c1": "reproduced", "c2": "reproduced"}),
    ):
        (tmp_path / folder).mkdir(parents=True)
        claims = [{"id": name, "verdict": verdict} for name, verdict in verdicts.items()]
        content = json.dumps({"paper": "toy", "claims": claims, "seeds": [0], "data": []})
        (tmp_path / folder / "verdicts.json").write_text(content)
    found = list(plainly.compare("quick"))
    plainly.keep("quick", found)
    said = plainly.sentence(tmp_path, "quick", "toy")
    assert "2 of 3 claims have another verdict: c2 (reproduced in place of open), c3" in said
    plainly.keep("quick", found[:1])
    assert "all 1 claims have the same" in plainly.sentence(tmp_path, "quick", "toy")
    assert plainly.sentence(tmp_path, "paper", "toy") == ""
    assert plainly.sentence(tmp_path, "quick", "other") == ""
    assert found == [
        ("toy", "c1", "reproduced", "reproduced"),
        ("toy", "c2", "open", "reproduced"),
        ("toy", "c3", "open", "not judged"),
    ]
