import pandas as pd
import pytest

from fedclust.report import readings


def record(values, metric="accuracy", seed=0):
    rows = [
        ("M", seed, t, i, 0, 0, metric, v)
        for t, clients in enumerate(values)
        for i, v in enumerate(clients)
    ]
    return pd.DataFrame(
        rows,
        columns=["algorithm", "seed", "round", "client", "group", "cluster", "metric", "value"],
    )


def test_over_clients_is_the_population():
    table = readings.over_clients(record([[0.2, 0.6], [0.5, 0.5]]))
    assert table["mean"].tolist() == pytest.approx([0.4, 0.5]) and table[
        "std"
    ].tolist() == pytest.approx([0.2, 0.0])


def test_final_and_average():
    table = readings.final_and_average(record([[0.2, 0.6], [0.5, 0.5]])).loc[0, "M"]
    assert table["final mean"] == pytest.approx(0.5) and table["final std"] == pytest.approx(0)
    assert table["average mean"] == pytest.approx(0.45) and table["average std"] == pytest.approx(
        0.1
    )


def test_rounds_to_says_when_it_never_got_there():
    both = pd.concat(
        [record([[0.1], [0.6], [0.4], [0.7]]), record([[0.1], [0.2], [0.3], [0.4]], seed=1)]
    )
    table = readings.rounds_to(both, "accuracy", 0.5).set_index("seed")
    assert table.loc[0, "round"] == 1 and not table.loc[0, "censored"]
    assert table.loc[1, "round"] == 3 and table.loc[1, "censored"]


def test_regrouped_ignores_names_and_newcomers():
    """{01}{2} -> the same under other names and a newcomer: no; -> {0}{12}: yes."""
    columns = ["algorithm", "seed", "round", "client", "group", "cluster", "metric", "value"]
    clusters = [{0: 0, 1: 0, 2: 1}, {0: 5, 1: 5, 2: 3, 3: 3}, {0: 5, 1: 3, 2: 3, 3: 5}]
    rows = [
        ("M", 0, t, i, i, k, "accuracy", 0.5)
        for t, labels in enumerate(clusters)
        for i, k in labels.items()
    ]
    assert readings.regrouped(pd.DataFrame(rows, columns=columns)).regrouped.tolist() == [0, 1]
