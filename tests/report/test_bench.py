"""The bench: what is run and chosen, scores, and statistics worked out by hand."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from fedclust.paths import root
from fedclust.report import article, bench, papers, plots
from fedclust.report.drawings import compare as figures

SHIPPED = root() / "figures"
BASE = {
    "toy": {
        "data": {"name": "glyphs"},
        "partition": {"clients": 8, "limit": 20, "validation": 0.1},
        "model": {"kind": "mlp", "hidden": [8]},
        "train": {"batch": 10, "steps": 2},
        "rounds": 6,
        "eval_every": 2,
    }
}
KINDS = {"FedAvg": "one model", "Local": "no groups", "FineTuned": "no groups"}
KINDS |= {"IFCA": "clusters", "CFL": "clusters"}
KINDS |= {"Oracle": "control", "Told": "control"}
RUNS = {  # two scenarios, two seeds: accuracies in IID, then in groups
    "FedAvg": ([0.90, 0.90], [0.50, 0.60]),
    "Local": ([0.80, 0.80], [0.70, 0.70]),
    "IFCA": ([0.90, 0.80], [0.90, 1.00]),
    "CFL": ([0.90, 0.90], [0.50, 0.60]),
    "FineTuned": ([0.90, 0.90], [0.70, 0.80]),
    "Oracle": ([0.90, 0.90], [0.90, 1.00]),
    "Told": ([0.90, 0.90], [0.50, 0.60]),
}


def table():
    rows = [
        ("toy", scenario, method, seed, value, value - 0.1, 1.0, 1.0, 1e6 * (1 + len(method)))
        for at, scenario in enumerate(("IID", "groups"))
        for method, found in RUNS.items()
        for seed, value in enumerate(found[at])
    ]
    columns = [*bench.KEYS, "accuracy", "worst", "ari", "clusters", "bytes"]
    return pd.DataFrame(rows, columns=columns).assign(rounds=1.0)


CUBE = bench.Cube(table(), draws=400)


@pytest.fixture
def runs():
    few = {"toy": {"partition.limit": 5, "partition.validation": 0.02}}
    return bench.Bench(papers.load("compare"), BASE, few, changes=3, pace=2)


def test_every_scenario_and_method_is_a_trial_that_can_be_built(runs):
    trials = runs.reported(list(runs.methods), [0], {})
    assert len(trials) == len(runs.scenarios) * len(runs.methods) == 9 * 14
    by = {(trial.tags["scenario"], trial.label): trial.settings for trial in trials}
    assert by["few images", "FedAvg"]["partition"]["limit"] == 5
    assert by["changes", "FedAvg"]["changes"] == 3 and "changes" not in by["IID", "FedAvg"]
    joint = by["IID", "Joint"]
    assert joint["train"] == {"batch": 10} and joint["pace"] == 2
    assert BASE["toy"]["train"] == {"batch": 10, "steps": 2}
    own = runs.trial("toy", "IID", "mine.Mine", 0, {"train.lr": 0.1}).settings
    assert own["method"] == {"kind": "mine.Mine"} and own["train"]["lr"] == 0.1


def test_methods_have_equally_many_candidates_and_share_a_learning_rate(runs):
    counts = {len(tried) for _, _, tried, _ in runs.methods.values()}
    assert counts == {0, 1, 4}  # controls and FedACP; nothing is open; everybody else
    first = runs.candidates([7], None)
    assert {trial.label for trial in first} == {"FedAvg"} and len(first) == 9 * 4
    rate = {"FedAvg": {"train.lr": 0.2}}
    others = runs.candidates([7], {"toy": rate})
    assert {trial.settings["train"]["lr"] for trial in others} == {0.2}
    chosen = {"other": {}, "toy": rate | {"FedAC": {"method.beta": 0.1}}}
    assert runs.values("toy", "FedACP", chosen) == {"train.lr": 0.2, "method.beta": 0.1}
    assert runs.values("toy", "Oracle", chosen) == {"train.lr": 0.2}
    assert runs.values("never tuned", "Oracle", {"toy": rate}) == {"train.lr": 0.2}


def test_the_chosen_candidate_is_best_over_all_scenarios_and_the_first_of_equals(
    tmp_path, monkeypatch
):
    rows = [
        ("CFL", "{}", scenario, seed, value)
        for scenario, value in (("a", 0.4), ("b", 0.6))
        for seed in (100, 101)
    ]
    rows += [("CFL", '{"x": 1}', s, seed, 0.5) for s in "ab" for seed in (100, 101)]
    rows += [("CFL", '{"x": 2}', "a", 100, 0.99), ("CFL", '{"x": 2}', "b", 100, 0.0)]
    columns = ["algorithm", "candidate", "scenario", "seed", "value"]
    record = pd.DataFrame(rows, columns=columns).assign(data="toy", metric="accuracy")
    other = record[record.candidate != "{}"].assign(data="other")  # each data set chooses
    values, held_out = bench.best(pd.concat([record, other], ignore_index=True))
    assert values == {"toy": {"CFL": {}}, "other": {"CFL": {"x": 1}}}
    assert held_out["value"].tolist() == [0.4, 0.6, 0.5, 0.5]
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))
    (tmp_path / "papers").mkdir()
    with pytest.raises(papers.PaperError, match="has no choice"):
        bench.choice("quick")
    bench.keep_choice("quick", values, held_out)
    assert bench.choice("paper")[:2] == ("quick", values)
    assert bench.choice("quick")[2].to_dict("records") == held_out.to_dict("records")


def test_scores_by_hand():
    clients = [("Oracle", 3, c, "accuracy", 1.0) for c in range(11)]
    clients += [("CFL", 3, c, "accuracy", c / 10) for c in range(11)]
    curves = [("Oracle", t, -1, "mean", 1.0) for t in (0, 2)]
    curves += [
        ("CFL", 0, -1, "mean", 0.2),
        ("CFL", 2, -1, "mean", 0.9),
        ("CFL", 3, -1, "mean", 0.5),
    ]
    ends = [
        (m, 3, -1, name, 7.0) for m in ("Oracle", "CFL") for name in ("ari", "clusters", "bytes")
    ]
    columns = ["algorithm", "round", "client", "metric", "value"]
    record = pd.DataFrame([*clients, *curves, *ends], columns=columns)
    found = bench.scores(record.assign(data="toy", scenario="a", seed=0)).set_index("method")
    assert found.index.tolist() == ["Oracle", "CFL"]
    assert found.loc["CFL", ["accuracy", "worst", "rounds", "ari"]].tolist() == [0.5, 0.1, 3.0, 7.0]


def test_shares_and_improvement_by_hand():
    """IFCA closes the whole gap of 0.4; in IID there is none. Of IFCA's 4 + 4 pairs with FedAvg's
    runs 0.5 * 2 + 0 in IID and all 4 in groups are won: (1/4 + 4/4) / 2."""
    assert CUBE.tasks == [("toy", "IID"), ("toy", "groups")]
    assert CUBE.closed("IFCA")[0] is None and CUBE.closed("IFCA")[1] == pytest.approx((1, 1, 1))
    local = CUBE.closed("Local")[1]
    assert local == pytest.approx((0.375, 0.25, 0.5))  # 0.15 of 0.4; seeds alone: 0.2 and 0.1
    assert CUBE.difference("IFCA", "FedAvg")[1] == pytest.approx((0.4, 0.4, 0.4))
    assert CUBE.improvement("IFCA", "FedAvg")[0] == pytest.approx(0.625)
    assert CUBE.improvement("FedAvg", "FedAvg")[0] == pytest.approx(0.5)
    mean, low, high = CUBE.overall("Local")
    assert mean == pytest.approx(0.75) and low <= mean <= high
    with pytest.raises(ValueError, match="needs a run in each"):
        bench.Cube(table().iloc[:-1])


def test_the_interval_covers_what_the_seeds_scatter():
    rng = np.random.default_rng(0)
    rows = [
        ("toy", "a", m, seed, rng.normal(at, 0.1))
        for m, at in (("A", 0.6), ("B", 0.5))
        for seed in range(40)
    ]
    cube = bench.Cube(pd.DataFrame(rows, columns=[*bench.KEYS, "accuracy"]))
    (mean, low, high), (own, least, most) = cube.difference("A", "B")[0], cube.overall("A")
    assert (high - low) / 2 == pytest.approx(1.96 * 0.1 * (2 / 40) ** 0.5, rel=0.3)
    assert (most - least) / 2 == pytest.approx(1.96 * 0.1 / 40**0.5, rel=0.3)
    assert low < mean < high and least < own < most


def test_clustering_pays_where_it_beats_all_others():
    rows = [
        ("toy", s, m, v)
        for s in ("IID", "groups")
        for m, v in (("FedAvg", 0.6), ("Local", 0.7), ("CFL", 0.5), ("IFCA", 0.9))
    ]
    held_out = pd.DataFrame(rows, columns=["data", "scenario", "method", "value"])
    paid = bench.pays(CUBE, held_out, KINDS).set_index("scenario")
    assert paid["by"].tolist() == ["IFCA", "IFCA"] and paid["against"].tolist() == ["Local"] * 2
    assert paid.loc["groups", "clustering"] == "pays"
    assert paid.loc["groups", "gain"] == pytest.approx(0.25)
    assert paid.loc["IID", "over Oracle"] == pytest.approx(-0.05)
    other = bench.pays(CUBE, held_out.assign(data="other"), KINDS)
    assert other["gain"].tolist() == paid["gain"].tolist()  # chosen on another set
    assert bench.above_oracle(CUBE) == []


def test_the_article_says_the_numbers_of_the_scores():
    rows = [("toy", s, m, v) for s in ("IID", "groups") for m, v in (("Local", 0.7), ("IFCA", 0.9))]
    held_out = pd.DataFrame(rows, columns=["data", "scenario", "method", "value"])
    paid = bench.pays(CUBE, held_out, KINDS)
    five = article.sentences(CUBE, table(), paid, KINDS)
    assert len(five) == 5 and "pays in 1 of 2 scenarios: groups." in five[0]
    assert "is 25.0 points above" in five[0] and "makes no difference in IID" in five[1]
    assert five[2].endswith("of the gap between FedAvg and Oracle, 0 % in groups.")
    assert "FineTuned is above FedAvg in 1 of 2 scenarios and closes 50 % of the gap" in five[3]
    assert "IFCA has a mean ARI of 1.00 and closes 100 % of it in the median, CFL" in five[4]
    assert five[4].endswith("CFL sends 0.6 times FedAvg's bytes, IFCA 0.7 times.")
    story = article.blocks(CUBE, five, paid, "Two seeds.")
    images = {name: png() for name in ("fig1", "fig3")}
    assert article.html(story, images).count(b"<img src=") == 2
    assert article.pdf(story, images) == article.pdf(story, images)  # undated
    assert article.pdf(story, images).startswith(b"%PDF")
    assert not [text for _, text in story if "nan" in text]


def test_places_are_named_with_their_data_sets_if_there_are_several():
    tasks = [("a", "x"), ("b", "x"), ("a", "y"), ("b", "z"), ("a", "w"), ("b", "w")]
    assert article.places(tasks, 2) == "x and w on a and b, and y on a, and z on b"
    assert article.places([("a", "x"), ("a", "y"), ("a", "z")], 1) == "x, y and z"
    assert article.places([("a", "x")], 2) == "x on a"


def test_a_figure_that_does_not_fit_waits_and_the_text_goes_on():
    story = [*[("text", f"line {k}") for k in range(30)], ("figure", "fig1"), ("text", "after")]
    story += [*[("text", f"more {k}") for k in range(20)], ("head", "last")]
    first, second = article.paged(story, {"fig1": plots.render(tall())[".png"]})
    texts = [[text.get_text() for text in page.texts] for page in (first, second)]
    assert (len(first.axes), len(second.axes)) == (0, 1)
    assert texts[0][30] == "after" and texts[1][-1] == "last"
    lowest = second.axes[0].get_position().y0
    assert all(text.get_position()[1] < lowest for text in second.texts)


def test_a_figure_that_is_higher_than_a_page_has_a_page():
    pages = article.paged([("figure", "fig1")], {"fig1": plots.render(tall(9))[".png"]})
    assert [len(page.axes) for page in pages] == [0, 1]


def tall(rows=3):
    fig, _ = plots.panels(rows, 1, height=2.2)
    return fig


@pytest.mark.parametrize(
    "tier", sorted(path.parts[-3] for path in SHIPPED.glob("*/compare/article.pdf"))
)
def test_the_shipped_article_has_two_pages(tier):
    content = (SHIPPED / tier / "compare" / "article.pdf").read_bytes()
    assert len(re.findall(rb"/Type /Page\b", content)) == 2


def png():
    return plots.render(figures.improvements(CUBE))[".png"]


def test_the_matrix_has_shares_or_points():
    assert figures.cells(CUBE, "Local")[1] == (pytest.approx(0.375), "0.37\n0.25 0.50")
    value, text = figures.cells(CUBE, "Local")[0]
    assert np.isnan(value) and text == "-10.0\n-10.0 -10.0"
    texts = [each.get_text() for each in figures.matrix(CUBE).axes[0].texts]
    assert len(texts) == 2 * 5
    drawn = figures.traffic(table(), KINDS).axes[0]
    assert {name for each in drawn.texts for name in each.get_text().split(", ")} == set(RUNS)


def test_mean_ranks_and_the_critical_difference_by_hand():
    means, critical = CUBE.ranks(["FedAvg", "Local", "IFCA", "CFL", "FineTuned"])
    # IID: FedAvg, CFL and FineTuned share the ranks 1 to 3, IFCA is 4th, Local 5th.
    # groups: IFCA, FineTuned, Local, and FedAvg and CFL share 4 and 5.
    assert means.to_dict() == {
        "FineTuned": 2.0,
        "IFCA": 2.5,
        "FedAvg": 3.25,
        "CFL": 3.25,
        "Local": 4.0,
    }
    q = 2.728  # Demsar's Table 5 (a), five classifiers
    assert critical == pytest.approx(q * (5 * 6 / (6 * 2)) ** 0.5, abs=1e-3)


def test_the_shipped_choice_is_for_every_method(runs):
    tier, chosen, held_out = bench.choice("quick")
    tried = {name for name, (_, _, candidates, _) in runs.methods.items() if candidates}
    assert tier == "quick" and tried == set(held_out["method"])
    assert {*chosen} == set(held_out["data"]) >= {"mnist"}
    for values in chosen.values():
        assert values.keys() == tried
        for name, (_, _, candidates, _) in runs.methods.items():
            rate = {} if name == "FedAvg" else values["FedAvg"]
            assert not candidates or values[name] in [rate | each for each in candidates]
    assert json.dumps(chosen)
