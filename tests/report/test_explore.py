"""The notebook for exploring: it runs on shipped records alone, at every end of its sliders."""

import sys
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.figure import Figure

from fedclust.paths import root
from fedclust.report import notebooks

EXPLORE = "explore/explore"


@pytest.fixture
def shown(monkeypatch):
    """What the sliders show: functions with their arguments' choices."""
    found = []
    widgets = SimpleNamespace(
        interact=lambda shows, **sliders: found.append((shows, sliders)),
        FloatSlider=lambda value, **_: [value, -0.95, 0.95],
        FloatLogSlider=lambda value, **_: [value, 1e-3, 1e3],
        SelectionSlider=lambda options, value: list(options),
    )
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    source = (root() / "replications" / f"{EXPLORE}.py").read_text(encoding="utf-8")
    exec(source, {})
    return {shows.__name__: (shows, sliders) for shows, sliders in found}


def test_every_choice_is_drawn_from_shipped_records(shown):
    assert {*shown} == {"first_splits", "optics", "purity"}
    for shows, sliders in shown.values():
        for name, choices in sliders.items():
            for choice in choices:
                assert isinstance(shows(**{name: choice}), (Figure, pd.DataFrame))


def test_at_the_papers_thresholds_the_first_split_comes_at_once(shown):
    table = shown["first_splits"][0]()
    assert set(table["1 groups"]) == {"never"}
    assert all(float(count) <= 3 for count in table["4 groups"])


def test_the_pair_is_in_step():
    pair = root() / "replications" / f"{EXPLORE}.ipynb"
    assert pair.read_text(encoding="utf-8") == notebooks.text(notebooks.read(EXPLORE))
