"""Papers' files, notebook parameters, verdicts."""

import copy
import math
import os
import re
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
[[control]]
id = "b"
label = "B's mean"
expr = "b"
where = "Table 1"
paper = 0.6
[[claim]]
id = "c1"
short = "A beats B"
text = "A is better than B"
where = "Table 1"
figure = ["table1"]
control = ["b"]
[[claim.test]]
label = "A minus B"
expr = "a - b"
paper = 0.1
[[left_out]]
id = "l1"
text = "Toys are cheap"
where = "Sec. 1"
figure = ["text"]
reason = "no number"
[[seeds_planned]]
tier = "quick"
number = 3
cap = 20
date = "2026-11-20"
reason = "a toy"
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


def test_a_page_has_the_shipped_values_until_the_plan_is_complete(content):
    content["setting"][1] |= {"shipped": 2.0, "paper": 8.0}
    paper = papers.check(content, "toy.toml")
    sizes = [
        paper.at(tier, device)["epsilon"]
        for tier in ("quick", "paper")
        for device in ("cpu", "cuda")
    ]
    assert sizes == [5.0, 5.0, 2.0, 10.0]
    assert paper.at("paper", planned=True)["epsilon"] == 8.0
    assert paper.at("quick", planned=True)["epsilon"] == 5.0
    assert (
        paper.settings_table("paper", "cuda").set_index("setting").loc["epsilon", "here (paper)"]
        == "the same"
    )
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
        (
            lambda c: c.update(reading=[{"name": "epsilon", "value": 1, "source": "paper"}]),
            "keep one",
        ),
        (lambda c: c["claim"][0].update(test=[]), "at least one block"),
        (lambda c: c["claim"][0].update(text=5), "text = 5: must be of type str"),
        (lambda c: c["setting"][1].update(min="a"), "min = 'a': must be of type number"),
        (lambda c: c["setting"][1].update(min=True), "min = True: must be of type number"),
        (lambda c: c["setting"][2].update(allowed=3), "allowed = 3: must be of type list"),
        (
            lambda c: c["setting"][2].update(parameter="yes"),
            "parameter = 'yes': must be of type bool",
        ),
        (lambda c: c["table"][0].update(rows="x"), "rows = 'x': must be of type list"),
        (lambda c: c["claim"][0]["test"][0].update(expr=5), "expr = 5: must be of type str"),
        (lambda c: c["claim"][0]["test"][0].update(expr="a.mean()"), "'a.mean()' is not allowed"),
        (
            lambda c: c["claim"][0]["test"][0].update(expr="@pd.io.common.os.system('x')"),
            "claim c1: 'A minus B': expr",
        ),
        (lambda c: c["claim"][0]["test"][0].update(below=1.0, above=1.0), "one side"),
        (lambda c: c["claim"][0]["test"][0].update(below=1.0, at_least=1.0), "one side"),
        (lambda c: c["claim"][0]["test"][0].pop("paper"), "has no mark"),
        (lambda c: c["claim"][0]["test"][0].update(paper=-0.1), "has no mark"),
        (lambda c: c["claim"][0]["test"][0].update(paper="0.1"), "must be a number"),
        (lambda c: c["claim"][0]["test"][0].update(least=0.1), "with its `reason`"),
        (lambda c: c["claim"][0]["test"][0].update(kind="guess"), "kind = 'guess' must be one of"),
        (lambda c: c["claim"][0]["test"][0].update(kind="arrivals"), "needs it"),
        (lambda c: c["claim"][0]["test"][0].update(kind="ratio", above=0.0), "no effect is 1"),
        (lambda c: c["claim"][0]["test"][0].pop("label"), "label missing"),
        (lambda c: c["claim"][0]["test"][0].update(control=["a"]), "out of b"),
        (lambda c: c["claim"][0].pop("control"), "give `control`, or `uncontrolled`"),
        (lambda c: c["claim"][0].update(control=["c"]), "out of b"),
        (lambda c: c["claim"][0].update(figure=["table9"]), "must be a list out of text, table1"),
        (
            lambda c: c["claim"][0].update(changed=[{"before": "x"}]),
            "changed: date, reason missing",
        ),
        (lambda c: c["claim"][0].update(because="it is {a"), "claim c1: because: 'it is {a'"),
        (lambda c: c["claim"][0].update(because="it is {a b}"), "claim c1: because: "),
        (lambda c: c["claim"][0].update(because=3), "because = 3: must be of type str"),
        (lambda c: c["left_out"][0].update(figure=["fig9"]), "must be a list out of text"),
        (lambda c: c["seeds_planned"][0].pop("reason"), "reason missing"),
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


@given(
    st.text(max_size=200)
    | st.sampled_from(TOML.splitlines()).map(lambda line: TOML.replace(line, line[:-2], 1))
)
@settings(max_examples=100, deadline=None)
def test_malformed_files_never_escape_as_another_error(text):
    with suppress(papers.PaperError, tomllib.TOMLDecodeError):
        papers.check(tomllib.loads(text), "x.toml")


def test_missing_paper_lists_those_there(folder):
    with pytest.raises(papers.PaperError, match=r"no paper 'nope': .*toy"):
        papers.load("nope")


def test_start_resolves_none_to_the_tier(folder):
    _, p = papers.start(
        "toy", {"tier": "quick", "seeds": None, "epsilon": None, "jobs": 1, "pd": pd}
    )
    assert (p.tier, p.seeds, p.epsilon, p.rounds, p.jobs, p.changed) == (
        "quick",
        [0, 1, 2],
        5.0,
        60,
        1,
        {},
    )


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
    with pytest.raises(
        papers.PaperError, match=r"toy\.py never reads rounds: write \[\[reading\]\]"
    ):
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
    assert table.loc["angle"].tolist() == ["any", "the same", "paper", "a note"]


def test_a_device_exists_where_a_paper_uses_it_and_must_be_there(folder):
    more = '[[setting]]\nname = "device"\nvalue = "cpu"\nsource = "assumed"\nparameter = true\n'
    text = TOML.replace("quick = 5.0", "quick = 5.0\nshipped = 2.0").replace(
        "[[table]]", more + "[[table]]"
    )
    (folder / "papers" / "toy.toml").write_text(text)
    assert papers.start("toy", {"tier": "paper"})[1].epsilon == 2.0
    with pytest.raises(papers.PaperError, match="device = 'tpu': this machine has none"):
        papers.start("toy", {"tier": "paper", "device": "tpu"})


def test_another_device_is_another_experiment(folder, monkeypatch):
    monkeypatch.setattr(papers, "has_device", lambda device: True)
    more = '[[setting]]\nname = "device"\nvalue = "cpu"\nsource = "assumed"\nparameter = true\n'
    text = TOML.replace("quick = 5.0", "quick = 5.0\nshipped = 2.0").replace(
        "[[table]]", more + "[[table]]"
    )
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


def test_old_names_resolve():
    assert papers.interval([1, math.nan, 3])[0] == 2


def test_every_paper_of_the_project_passes_the_check():
    assert all(papers.load(key).key == key for key in papers.keys())  # noqa: SIM118


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


@pytest.mark.parametrize("key", papers.keys())
def test_every_open_value_has_other_readings_or_is_bookkeeping(key):
    """`readings = []` says that there is no other defensible value; then the note says why."""
    paper = papers.load(key)
    for name, setting in paper.settings.items():
        if setting["source"] in papers.OPEN:
            assert ("readings" in setting) != ("bookkeeping" in setting), name
            assert setting.get("readings") != [] or setting.get("note"), name
    assert paper.multiverse["plans"] and paper.multiverse["headline"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('readings = [{ value = "none", reason = "r" }]', "allowed are 'update', 'dpsgd'"),
        ('readings = [{ value = "dpsgd" }]', "readings: reason missing"),
        ('readings = [{ value = "update", reason = "r" }]', "'update' comes twice: keep one"),
        ("readings = []\nbookkeeping = true", "only an open value that is no bookkeeping"),
    ],
)
def test_readings_are_checked(line, message):
    text = TOML.replace('name = "mechanism"', f'name = "mechanism"\n{line}')
    with pytest.raises(papers.PaperError, match=re.escape(message)):
        papers.check(tomllib.loads(text), "toy.toml")


def test_a_value_that_the_paper_prints_has_no_other_readings():
    other = 'readings = [{ value = 30, reason = "r" }]'
    text = TOML.replace('name = "rounds"', f'name = "rounds"\n{other}')
    with pytest.raises(papers.PaperError, match="only an open value"):
        papers.check(tomllib.loads(text), "toy.toml")


def test_sizes_and_claims_of_the_readings_are_known():
    section = '[multiverse]\nplans = ["main"]\nheadline = ["c1"]\n'
    both = TOML.replace("[paper]", section + "[paper]")
    assert papers.check(tomllib.loads(both), "toy.toml").multiverse["plans"] == ["main"]
    for wrong in (
        both.replace('"c1"]', '"c9"]'),
        both.replace("[paper]", "sizes = {a = 1}\n[paper]"),
    ):
        with pytest.raises(papers.PaperError, match="multiverse"):
            papers.check(tomllib.loads(wrong), "toy.toml")
