"""A notebook's measures without its figures: what runs, what is left out, and the same numbers."""

import pandas as pd
import pytest

from fedclust.paths import root
from fedclust.report import measuring, papers

NOTEBOOK = """
# %%
import pandas as pd
paper, p = papers.start("toy", globals())
report = Report(paper, p)

# %%
raise ValueError("no measure depends on this")

# %%
def double(x):
    return factor * x

factor = p.rate
plans = {"main": [trial(s) for s in p.seeds], "side": []}
plans["more"] = []
ran = report.sweeps(plans)
measures = {}

# %%
side = ran["more"]
both = pd.concat([side, ran["main"]])
measures["side"] = side.mean()
measures["both"] = both.mean()
both = ran["main"]
measures["main"] = both
measures |= {"twice": double(both)}
for name in ("a", "b"):
    measures[name] = both + p.shift
parts = {"empty": 0.0}
for name in ("c", "d"):
    parts[name] = ran["more"]
measures["c"] = parts["c"]
report.figure("fig1", draw(name, p.colour))
spare = measures["a"] ** p.power

# %%
report.judge(pd.DataFrame(measures).round(3))
measures["late"] = 0
"""


class Ran(measuring.Sweeper):
    """Sweeps that need no training: the record of a plan is its seeds."""

    def sweeps(self, plans):
        kept = {name: plan for name, plan in plans.items() if name in self.plans}

        class Records(dict):
            def __missing__(self, name):
                raise measuring.NotRun(name)

        return Records({name: pd.Series(plan, self.seeds) for name, plan in kept.items()})


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "papers").mkdir()
    (tmp_path / "replications").mkdir()
    text = NOTEBOOK.replace("trial(s)", "float(s)")
    (tmp_path / "replications" / "toy.py").write_text(text)
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))
    measuring.needed.cache_clear()
    yield papers.Paper("toy", *({} for _ in range(10)))
    measuring.needed.cache_clear()


def test_only_what_the_measures_depend_on_runs(toy):
    p = papers.Parameters({"rate": 2.0, "shift": 1.0, "seeds": [3, 4]})
    found = measuring.measures(toy, p, Ran(["main"], seeds=[3, 4]))
    assert found.loc[3].to_dict() == {"main": 3.0, "twice": 6.0, "a": 4.0, "b": 4.0}
    assert found.loc[4].to_dict() == {"main": 4.0, "twice": 8.0, "a": 5.0, "b": 5.0}


def test_the_settings_that_the_measures_depend_on(toy):
    assert measuring.reads("toy") == {"rate", "shift", "seeds"}


def test_a_label_that_is_left_out_leaves_out_what_it_is_for(toy):
    source = root() / "replications" / "toy.py"
    more = 'measures["x"] = {"kept": 1}["gone"]\nmeasures["y"] = {}["gone", "mean"]\n'
    source.write_text(source.read_text().replace("both = ran", more + "both = ran"))
    p = papers.Parameters({"rate": 2.0, "shift": 1.0, "seeds": [3]})
    found = measuring.measures(toy, p, Ran(["main"], without=["gone"], seeds=[3]))
    assert "main" in found and not {"x", "y"} & {*found}
    with pytest.raises(KeyError, match="gone"):
        measuring.measures(toy, p, Ran(["main"], seeds=[3]))


def test_a_notebook_that_judges_nothing_is_refused(toy):
    (root() / "replications" / "toy.py").write_text("# %%\na = 1\n")
    with pytest.raises(ValueError, match=r"never calls report\.judge"):
        measuring.needed("toy")


@pytest.mark.parametrize("key", papers.keys())
def test_every_papers_notebook_can_be_measured(key):
    """No figure is drawn, and the measures come from sweeps by name."""
    program, _ = measuring.needed(key)
    drawing = {"figure", "compare", "summary"}
    assert program and not any(drawing & {*statement.code.co_names} for statement in program)
    assert any("sweeps" in statement.code.co_names for statement in program)
    paper = papers.load(key)
    assert measuring.reads(key) <= paper.settings.keys()
    source = (root() / "replications" / f"{key}.py").read_text()
    assert all(f'"{plan}"' in source for plan in paper.multiverse["plans"])
