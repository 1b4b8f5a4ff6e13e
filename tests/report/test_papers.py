"""Papers' files, notebook parameters, verdicts."""

import copy
import math
import os
import subprocess
import sys
import tomllib
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust.report import papers
from tests.test_house import PACKAGE, imported

TOML = """
key = "toy"
[paper]
title = "Toy"
authors = ["A"]
venue = "V"
year = 2020
claim = "Toys learn."
[[setting]]
name = "seeds"
value = [0, 1, 2]
source = "assumed"
smoke = [0]
parameter = true
[[setting]]
name = "epsilon"
value = 10.0
source = "paper"
min = 0.5
quick = 5.0
parameter = true
[[setting]]
name = "mechanism"
value = "update"
source = "assumed"
allowed = ["update", "dpsgd"]
parameter = true
[[setting]]
name = "rounds"
value = 60
source = "paper"
[[table]]
id = "table1"
caption = "Numbers"
columns = ["mean"]
rows = [["A", 0.7]]
[[figure]]
id = "fig1"
caption = "A figure"
[[claim]]
id = "c1"
text = "A is better than B"
where = "Table 1"
[[claim.test]]
expr = "a - b"
above = 0.0
paper = 0.1
tolerance = 0.05
"""


@pytest.fixture
def content():
    return tomllib.loads(TOML)


@pytest.fixture
def paper(content):
    return papers.check(content, "toy.toml")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "toy.toml").write_text(TOML)
    monkeypatch.setattr(papers, "root", lambda: tmp_path)
    return tmp_path


def test_tier_values_override_the_paper_size(paper):
    assert paper.at("quick")["epsilon"] == 5.0
    assert paper.at("paper")["epsilon"] == 10.0
    table = paper.settings_table("quick").set_index("setting")
    assert table.loc["epsilon", "paper size"] == "10"
    assert table.loc["epsilon", "here (quick)"] == "5"


def test_a_processor_may_have_sizes_of_its_own(content):
    content["setting"][1]["cpu"] = 2.0
    paper = papers.check(content, "toy.toml")
    sizes = [paper.at(tier, device)["epsilon"] for tier in ("quick", "paper") for device in ("cpu", "cuda")]
    assert sizes == [5.0, 5.0, 2.0, 10.0]
    assert paper.settings_table("paper", "cuda").set_index("setting").loc["epsilon", "here (paper)"] == "10"
    assert paper.settings_table("paper").set_index("setting").loc["epsilon", "here (paper)"] == "2"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("paper"), "paper missing"),
        (lambda c: c["paper"].pop("title"), "title missing"),
        (lambda c: c.update(figurs=[]), "unknown figurs"),
        (lambda c: c["setting"][0].update(source="rumour"), "source 'rumour'"),
        (lambda c: c["setting"][1].update(quick="five"), "epsilon: quick = 'five'"),
        (lambda c: c["setting"][2].update(value="none"), "allowed are 'update', 'dpsgd'"),
        (lambda c: c["setting"].append(c["setting"][0]), "must be a unique string"),
        (lambda c: c["table"][0].update(rows=[["A", 1, 2]]), "its name and 1 cells"),
        (lambda c: c.update(reading=[{"name": "epsilon", "value": 1, "source": "paper"}]), "keep one"),
        (lambda c: c["claim"][0].update(test=[]), "at least one block"),
        (lambda c: c["claim"][0].update(text=5), "text = 5: must be of type str"),
        (lambda c: c["setting"][1].update(min="a"), "min = 'a': must be of type number"),
        (lambda c: c["setting"][1].update(min=True), "min = True: must be of type number"),
        (lambda c: c["setting"][2].update(allowed=3), "allowed = 3: must be of type list"),
        (lambda c: c["setting"][2].update(parameter="yes"), "parameter = 'yes': must be of type bool"),
        (lambda c: c["table"][0].update(rows="x"), "rows = 'x': must be of type list"),
        (lambda c: c["claim"][0]["test"][0].update(expr=5), "expr 5: 5 must be a string"),
        (lambda c: c["claim"][0]["test"][0].update(expr="a.mean()"), "'a.mean()' is not allowed"),
        (lambda c: c["claim"][0]["test"][0].update(expr="@pd.io.common.os.system('x')"), "claim c1: expr"),
        (lambda c: c["claim"][0]["test"][0].update(below=1.0), "exactly one of"),
        (lambda c: c["claim"][0]["test"][0].pop("above"), "exactly one of"),
        (lambda c: c["claim"][0]["test"][0].update(paper="0.1"), "must be a number"),
        (lambda c: c.update(claim="c1"), "write [[claim]]"),
        (lambda c: c.update(claim=["c1"]), "must be a table"),
    ],
)
def test_errors_name_file_and_key(content, change, message):
    broken = copy.deepcopy(content)
    change(broken)
    with pytest.raises(papers.PaperError, match=r"toy\.toml") as error:
        papers.check(broken, "toy.toml")
    assert message in str(error.value)
    assert len(str(error.value)) <= 300


@given(st.text(max_size=200) | st.sampled_from(TOML.splitlines()).map(lambda line: TOML.replace(line, line[:-2], 1)))
@settings(max_examples=100, deadline=None)
def test_malformed_files_never_escape_as_another_error(text):
    with suppress(papers.PaperError, tomllib.TOMLDecodeError):
        papers.check(tomllib.loads(text), "x.toml")


def test_missing_paper_lists_those_there(folder):
    with pytest.raises(papers.PaperError, match=r"no paper 'nope': .*toy"):
        papers.load("nope")


def test_start_resolves_none_to_the_tier(folder):
    _, p = papers.start("toy", {"tier": "quick", "seeds": None, "epsilon": None, "jobs": 1, "pd": pd})
    assert (p.tier, p.seeds, p.epsilon, p.rounds, p.jobs, p.changed) == ("quick", [0, 1, 2], 5.0, 60, 1, {})


def test_start_takes_a_changed_value_and_says_so(folder):
    _, p = papers.start("toy", {"tier": "quick", "epsilon": 2, "seeds": 2})
    assert p.epsilon == 2.0
    assert p.seeds == [0, 1]
    assert p.changed == {"epsilon": 2.0}  # more seeds are not another experiment


@pytest.mark.parametrize(
    ("namespace", "message"),
    [
        ({"epsilom": 2}, "unknown parameter epsilom"),
        ({"rounds": 5}, "rounds is a setting but no parameter: add parameter = true"),
        ({"device": "cuda"}, "unknown parameter device"),  # this paper does not use it
        ({"tier": "huge"}, "tier = 'huge': allowed are smoke, quick, paper"),
        ({"epsilon": "two"}, "epsilon = 'two': must be of type float"),
        ({"epsilon": True}, "must be of type float"),
        ({"epsilon": 0.1}, "must be at least 0.5"),
        ({"epsilon": math.nan}, "must be at least 0.5"),
        ({"mechanism": "none"}, "allowed are 'update', 'dpsgd'"),
        ({"seeds": []}, "different whole numbers"),
        ({"seeds": [0, 0]}, "different whole numbers"),
        ({"seeds": [0.5]}, "different whole numbers"),
        ({"seeds": "0"}, "different whole numbers"),  # no seeds at all
        ({"seeds": 0}, "a number from 1 to 1000"),
        ({"seeds": 10**9}, "a number from 1 to 1000"),
        ({"seeds": range(10**9)}, "a number from 1 to 1000"),
        ({"seeds": np.array([0.5, 1])}, "different whole numbers"),
        ({"seeds": "many"}, "different whole numbers"),
        ({"epsilon": math.inf}, "must be at least 0.5"),
        ({"epsilon": "9" * 5000}, "..."),
        ({"x" * 500: 1}, "unknown parameter xxx"),
        ({"jobs": 0}, "jobs = 0"),
        ({"backend": 3}, "backend = 3"),
    ],
)
def test_wrong_parameters_are_named(folder, namespace, message):
    with pytest.raises(papers.PaperError) as error:
        papers.start("toy", namespace)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "seeds",
    [range(3), {0, 1, 2}, (0, 1, 2), np.arange(3), np.int64(3), "[0, 1, 2]", "3", [*np.arange(3)]],
    ids=repr,
)
def test_seeds_of_every_kind_are_honoured(folder, seeds):
    _, p = papers.start("toy", {"tier": "smoke", "seeds": seeds})
    assert p.seeds == [0, 1, 2]
    assert all(type(seed) is int for seed in p.seeds)


def test_a_setting_that_no_code_reads_is_an_error(folder):
    (folder / "replications").mkdir()
    source = folder / "replications" / "toy.py"
    source.write_text("p.epsilon, p.seeds, how['mechanism']  # p.rounds only in a comment")
    with pytest.raises(papers.PaperError, match=r"toy\.py never reads rounds: write \[\[reading\]\]"):
        papers.start("toy", {})
    source.write_text("p.epsilon, p.rounds, how['mechanism']")
    papers.start("toy", {})


@pytest.mark.parametrize("key", papers.keys())
def test_every_setting_of_the_papers_is_read(key):
    source = papers.root() / "replications" / f"{key}.py"
    assert papers.load(key).settings.keys() <= papers.read_by(source)


def test_readings_are_shown_with_the_settings(content):
    content["reading"] = [{"name": "angle", "value": "any", "source": "paper", "note": "a note"}]
    table = papers.check(content, "toy.toml").settings_table("quick").set_index("setting")
    assert table.loc["angle"].tolist() == ["any", "any", "paper", "", "a note"]


def test_a_device_exists_where_a_paper_uses_it_and_must_be_there(folder):
    more = '[[setting]]\nname = "device"\nvalue = "cpu"\nsource = "assumed"\nparameter = true\n'
    text = TOML.replace("quick = 5.0", "quick = 5.0\ncpu = 2.0").replace("[[table]]", more + "[[table]]")
    (folder / "papers" / "toy.toml").write_text(text)
    assert papers.start("toy", {"tier": "paper"})[1].epsilon == 2.0
    with pytest.raises(papers.PaperError, match="device = 'tpu': this machine has none"):
        papers.start("toy", {"tier": "paper", "device": "tpu"})


def test_another_device_is_another_experiment(folder, monkeypatch):
    monkeypatch.setattr(papers, "present", lambda device: None)
    more = '[[setting]]\nname = "device"\nvalue = "cpu"\nsource = "assumed"\nparameter = true\n'
    text = TOML.replace("quick = 5.0", "quick = 5.0\ncpu = 2.0").replace("[[table]]", more + "[[table]]")
    (folder / "papers" / "toy.toml").write_text(text)
    _, p = papers.start("toy", {"tier": "paper", "device": "cuda"})
    assert (p.epsilon, p.changed) == (10.0, {"device": "cuda"})


def test_the_order_of_changed_parameters_follows_no_hash(folder):
    code = (
        "import json; from fedclust.report import papers\n"
        "given = {'mechanism': 'dpsgd', 'epsilon': 2, 'seeds': 2}\n"
        "print(json.dumps(papers.start('toy', given)[1].changed))"
    )
    where = os.environ | {"FEDCLUST_ROOT": str(folder)}
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=where | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert found == {'{"epsilon": 2.0, "mechanism": "dpsgd"}\n'}


@pytest.mark.parametrize("name", ["papers", "plots", "site", "readings", "expressions"])
def test_pages_need_no_experiments(name):
    module = PACKAGE / "report" / f"{name}.py"
    assert not [str(m) for m in imported(module) if m.parts[0] in ("experiments", "algorithms")]


def test_rerunning_the_first_cell_ignores_later_variables(folder):
    namespace = {"tier": "smoke"}
    papers.start("toy", namespace)
    namespace["later"] = 3
    papers.start("toy", namespace)


def test_interval_by_hand():
    # 1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.3027, half = 4.3027 / sqrt(3) = 2.4841
    mean, low, high = papers.interval([1, 2, 3])
    assert (mean, low, high) == pytest.approx((2, 2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert papers.interval([5])[1:] == (-math.inf, math.inf)
    assert papers.interval([1, math.nan, 3])[0] == 2


def verdict(samples, **test):
    measures = pd.DataFrame({"x": samples})
    return papers.judge_test({"expr": "x", **test}, measures)["verdict"]


@pytest.mark.parametrize(
    ("samples", "test", "expected"),
    [
        ([0.10, 0.11, 0.12], {"above": 0}, "reproduced"),
        ([0.10, 0.11, 0.12], {"above": 0, "paper": 0.10, "tolerance": 0.05}, "reproduced"),
        ([0.10, 0.11, 0.12], {"above": 0, "paper": 0.50, "tolerance": 0.05}, "direction"),
        ([1.0, 1.0, 1.0], {"at_least": 0.95, "paper": 0.95, "tolerance": 0.05}, "reproduced"),
        ([0.10, -0.09, 0.12], {"above": 0}, "inconclusive"),
        ([0.11], {"above": 0}, "inconclusive"),  # one seed
        ([-0.10, -0.11, -0.12], {"above": 0}, "not reproduced"),
        ([0.0, 0.0, 0.0], {"above": 0}, "not reproduced"),  # exactly no effect
        ([0.10, -0.20, -0.01], {"above": 0}, "inconclusive"),
        ([-0.10, -0.11, -0.12], {"below": 0}, "reproduced"),
        ([0.10, 0.11, 0.12], {"below": 0}, "not reproduced"),
        ([1.0, 1.0, 1.0], {"at_least": 1.0}, "reproduced"),
        ([1.0, 0.9, 1.0], {"at_least": 1.0}, "inconclusive"),
        ([0.5, 0.51, 0.52], {"at_least": 1.0}, "not reproduced"),
        ([0.0, 0.0, 0.0], {"at_most": 0}, "reproduced"),
        ([2.0, 2.1, 2.2], {"at_most": 0}, "not reproduced"),
        ([math.nan] * 3, {"above": 0}, "inconclusive"),
    ],
)
def test_verdicts(samples, test, expected):
    assert verdict(samples, **test) == expected


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
@settings(deadline=None)
def test_above_and_below_mirror_each_other(samples):
    assert verdict(samples, above=0.0) == verdict([-s for s in samples], below=0.0)


def test_a_claim_is_as_strong_as_its_weakest_test(content):
    content["claim"][0]["test"].append({"expr": "a", "at_least": 0.9})
    paper = papers.check(content, "toy.toml")
    measures = pd.DataFrame({"a": [0.70, 0.71, 0.72], "b": [0.60, 0.61, 0.62]}, index=[0, 1, 2])
    claim = papers.judge(paper, measures)[0]
    assert [t["verdict"] for t in claim["tests"]] == ["reproduced", "not reproduced"]
    assert claim["verdict"] == "not reproduced"
    assert "a = 0.71" in claim["why"]


def test_untested_needs_a_reason_and_a_claim(paper):
    measures = pd.DataFrame({"a": [1.0], "b": [0.0]})
    assert papers.judge(paper, measures, {"c1": "no data"})[0]["why"] == "no data"
    with pytest.raises(papers.PaperError, match="untested names c9"):
        papers.judge(paper, measures, {"c9": "no data"})


def test_a_measure_that_is_missing_is_an_error_not_a_verdict(paper):
    with pytest.raises(papers.PaperError, match="cannot be computed"):
        papers.judge(paper, pd.DataFrame({"a": np.ones(3)}))


def test_every_paper_of_the_project_passes_the_check():
    assert all(papers.load(key).key == key for key in papers.keys())  # noqa: SIM118  a function of ours, no dictionary


ODD = [5, "x", True, [], {}, [[]], [{}], math.nan, 10**400, "é" * 5000, [1, "a"], {"a": 1}, ""]


def places(value, place=()):
    """Every place in a file: its sections, entries and values."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3])
    for key, part in inner:
        yield (*place, key)
        if isinstance(part, (dict, list)):
            yield from places(part, (*place, key))


@pytest.mark.parametrize("key", papers.keys())
def test_a_wrong_value_anywhere_is_one_clear_line(key):
    content = tomllib.loads((papers.root() / "papers" / f"{key}.toml").read_text())
    cases = [(place, odd) for place in places(content) for odd in ODD]
    for place, odd in cases[:: len(cases) // 80]:
        part = content
        for step in place[:-1]:
            part = part[step]
        before, part[place[-1]] = part[place[-1]], copy.deepcopy(odd)
        try:
            papers.check(content, f"{key}.toml").settings_table("quick")
        except papers.PaperError as error:
            assert len(str(error)) <= 300 and "\n" not in str(error)
        part[place[-1]] = before
