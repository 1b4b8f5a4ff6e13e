"""Figures: they show what was measured, nothing overlaps, a record always gives the same bytes."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from fedclust.report import plots
from fedclust.report.readings import by_round


def record(seeds=3, rounds=6, clients=4, late=2):
    """Accuracy is round / 10 + seed / 100; the last client comes late; server rows are ignored."""
    rows = [
        ("A", s, r, c, "accuracy", r / 10 + s / 100)
        for s, r, c in itertools.product(range(seeds), range(rounds), range(clients))
        if c < clients - 1 or r >= late
    ]
    rows += [
        ("A", s, r, -1, "clusters", 1.0) for s, r in itertools.product(range(seeds), range(rounds))
    ]
    return pd.DataFrame(rows, columns=["algorithm", "seed", "round", "client", "metric", "value"])


def drawn(fig):
    FigureCanvasAgg(fig).draw()
    return fig.canvas.get_renderer()


def overlapping(artists, renderer):
    boxes = [artist.get_window_extent(renderer) for artist in artists if artist.get_text()]
    return [
        pair
        for pair in itertools.combinations(boxes, 2)
        if pair[0].padded(-1).overlaps(pair[1].padded(-1))
    ]


def test_looks_differ_in_colour_dashes_and_marker_and_in_grey_by_dashes():
    looks = [plots.look(k) for k in range(5)]
    for part in ("color", "ls", "marker"):
        assert len({str(look[part]) for look in looks}) == 5
    grey = [0.3 * r + 0.59 * g + 0.11 * b for r, g, b in map(to_rgb, plots.PALETTE)]
    assert max(grey) < 0.75  # visible on white paper


def test_by_round_is_the_mean_over_clients_per_seed():
    frame = by_round(record())
    assert frame.shape == (3, 6)
    np.testing.assert_allclose(frame.loc[2], np.arange(6) / 10 + 0.02)


def test_band_draws_mean_and_t_interval():
    fig, ax = plots.panels()
    two = pd.DataFrame([[0.0, 1.0], [2.0, 1.0]], index=[0, 1], columns=[5, 10])
    plots.band(ax, two, "two seeds", seeds=False)
    line = ax.lines[-1]
    np.testing.assert_allclose(line.get_xydata(), [[5, 1], [10, 1]])
    ys = ax.collections[0].get_paths()[0].vertices[:, 1]
    half = 12.7062047  # t quantile at one degree of freedom; the standard error is 1
    assert ys.min() == pytest.approx(1 - half) and ys.max() == pytest.approx(1 + half)
    plots.band(ax, pd.DataFrame([[3.0, 4.0]]), "one seed")
    assert len(ax.collections) == 1  # one seed has no interval
    assert (
        ax.lines[-1].get_color() != line.get_color()
        and ax.lines[-1].get_linestyle() != line.get_linestyle()
    )
    del fig


def test_few_seeds_are_drawn_one_by_one_and_a_method_has_one_look():
    _, ax = plots.panels()
    plots.band(ax, pd.DataFrame(np.eye(5)), "DCFL")
    assert len(ax.lines) == 6 and not ax.collections  # five seeds and their mean
    plots.band(ax, pd.DataFrame(np.eye(6)), "FedAvg")
    assert len(ax.lines) == 7 and len(ax.collections) == 1
    for name, line in (("DCFL", ax.lines[5]), ("FedAvg", ax.lines[6])):
        assert line.get_color() == plots.look(name)["color"]
        assert line.get_marker() == plots.look(name)["marker"]
    looks = {tuple(map(str, plots.look(name).values())) for name in plots.METHODS}
    assert len(looks) == len(plots.METHODS)
    assert len({look[1:] for look in looks}) == len(looks)  # in grey as well


def test_client_curves_show_clients_of_one_seed_and_newcomers_from_their_first_round():
    _, ax = plots.panels()
    plots.client_curves(ax, record(), seed=1)
    clients, mean = ax.lines[:4], ax.lines[4]
    assert [len(np.flatnonzero(~np.isnan(line.get_ydata()))) for line in clients] == [6, 6, 6, 4]
    np.testing.assert_allclose(mean.get_ydata(), np.arange(6) / 10 + 0.01)


@pytest.mark.parametrize(("high", "numbers"), [(99, 100), (10**9, 0)])
def test_heat_writes_numbers_where_they_fit_else_a_colour_bar(high, numbers):
    values = np.full((10, 10), high)
    values[0, 0] = high
    fig, axes = plots.panels(1, 3, height=2.6)
    plots.heat(axes[0], values, range(10), range(10))
    assert len(axes[0].texts) == numbers and len(fig.axes) == (3 if numbers else 4)
    assert axes[0].get_ylim() == (10, 0)  # the first row is on top
    assert not overlapping(axes[0].texts, drawn(fig))


def test_heat_leaves_zeros_empty_contrasts_and_checks_its_names():
    _, ax = plots.panels()
    plots.heat(ax, [[0, 1], [5, 10]], "ab", "xy")
    assert [(t.get_text(), t.get_color()) for t in ax.texts] == [
        ("1", "black"),
        ("5", "black"),
        ("10", "white"),
    ]
    with pytest.raises(ValueError, match=r"\(2, 2\).*3 names for rows"):
        plots.heat(ax, [[0, 1], [5, 10]], "abc", "xy")


def test_heat_names_do_not_touch():
    fig, ax = plots.panels(height=3)
    plots.heat(
        ax, np.ones((47, 30)), [f"class {i}" for i in range(47)], [f"client {i}" for i in range(30)]
    )
    renderer = drawn(fig)
    assert not overlapping(ax.get_yticklabels(), renderer) and not overlapping(
        ax.get_xticklabels(), renderer
    )


def test_legend_stands_above_the_panels_and_names_each_look_once():
    fig, axes = plots.panels(1, 2)
    for ax, k in itertools.product(axes, range(8)):
        plots.band(ax, by_round(record()), f"method number {k}")
    plots.legend(fig)
    renderer = drawn(fig)
    names = [text.get_text() for text in fig.legends[0].get_texts()]
    assert sorted(names) == [f"method number {k}" for k in range(8)]
    box = fig.legends[0].get_window_extent(renderer)
    assert not any(box.overlaps(ax.get_window_extent(renderer)) for ax in axes)
    assert box.x0 >= 0 and box.x1 <= fig.bbox.x1
    assert not overlapping(fig.legends[0].get_texts(), renderer)


def test_footer_stands_below_everything_and_wraps():
    fig, ax = plots.panels(height=2)
    ax.set_xlabel("round")
    plots.footer(fig, "tier quick · " * 40)
    renderer = drawn(fig)
    small = fig.texts[-1].get_window_extent(renderer)
    assert small.y1 <= ax.get_tightbbox(renderer).y0 and small.x1 <= fig.bbox.x1 * 1.02


def test_same_record_same_bytes_and_nothing_else_is_left(tmp_path):
    def make(folder):
        fig, axes = plots.panels(1, 2)
        plots.client_curves(axes[0], record())
        plots.heat(axes[1], np.arange(6).reshape(2, 3), "ab", "xyz")
        plots.legend(fig)
        plots.footer(fig, "seeds 0, 1, 2")
        return [path.read_bytes() for path in plots.save(fig, folder / "fig1")]

    first, again = make(tmp_path / "one"), make(tmp_path / "two")
    assert first == again
    assert first[0].lstrip().startswith(b"<?xml") and first[1].startswith(b"\x89PNG")
    assert b"<dc:date>" not in first[0] and b"Software" not in first[1]
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["fig1.png", "fig1.svg"]
