"""The closed forms against the papers' definitions, written with angles and one pair at a time."""

import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust import geometry
from fedclust.rng import stream


def by_angles(a, b, c, d):
    """DCFL Eqs. 1, 2 as printed: alpha between AB and DB (pointing outward at 0), beta between CD
    and BD.
    """
    ab, cd, bd = b - a, d - c, (b - d).norm()
    if bd == 0:
        return 0.0, 0.0
    cos = [
        float(v @ w / (v.norm() * w.norm()))
        if v.norm() > 0
        else 0.0  # a null vector's share is 0 anyway
        for v, w in ((ab, b - d), (cd, d - b))
    ]
    total = ab.norm() + cd.norm()
    omega = float((ab.norm() * cos[0] + cd.norm() * cos[1]) / total) if total > 0 else 0.0
    return omega, float(bd * math.exp(2 * omega))


def loop(starts, ends):
    starts, ends = starts.double(), ends.double()
    n = len(ends)
    pairs = [
        [by_angles(starts[i], ends[i], starts[j], ends[j]) for j in range(n)] for i in range(n)
    ]
    table = torch.tensor(pairs, dtype=torch.float64)  # (n, n, 2)
    return table[..., 0], table[..., 1]


def updates(*rows):
    """Rows of (start, end)."""
    starts, ends = zip(*rows, strict=True)
    return torch.tensor(starts, dtype=torch.float64), torch.tensor(ends, dtype=torch.float64)


# ---- the special cases the paper names


def test_pointing_outward_on_one_line_is_1():
    starts, ends = updates(([1.0, 0.0], [3.0, 0.0]), ([-1.0, 0.0], [-2.0, 0.0]))
    assert geometry.divergence(starts, ends)[0, 1] == 1
    assert geometry.distance(starts, ends)[0, 1] == pytest.approx(5 * math.exp(2))  # |BD| = 5


def test_pointing_at_each_other_is_minus_1():
    starts, ends = updates(([3.0, 0.0], [1.0, 0.0]), ([-3.0, 0.0], [-1.0, 0.0]))
    assert geometry.divergence(starts, ends)[0, 1] == -1
    assert geometry.distance(starts, ends)[0, 1] == pytest.approx(2 * math.exp(-2))


def test_parallel_equal_vectors_keep_their_distance():
    starts, ends = updates(([0.0, 0.0], [1.0, 2.0]), ([3.0, 1.0], [4.0, 3.0]))
    assert geometry.divergence(starts, ends)[0, 1] == pytest.approx(0, abs=1e-15)
    assert geometry.distance(starts, ends)[0, 1] == pytest.approx(math.sqrt(10))


@pytest.mark.parametrize("degrees", [1.0, 30.0, 60.0, 90.0, 150.0, 180.0])
def test_one_origin_and_one_length(degrees):
    g = math.radians(degrees)
    starts, ends = updates(
        ([5.0, 5.0], [7.0, 5.0]), ([5.0, 5.0], [5 + 2 * math.cos(g), 5 + 2 * math.sin(g)])
    )
    assert geometry.divergence(starts, ends)[0, 1] == pytest.approx(
        math.sqrt((1 - math.cos(g)) / 2), rel=1e-9
    )


def test_same_end_is_distance_0_whatever_the_origins():
    starts = torch.randn(4, 7, generator=stream(0, "starts"))
    ends = torch.randn(1, 7, generator=stream(0, "end")).repeat(4, 1)
    ends[3] += 1
    for kind in ("complete", "euclidean"):
        assert (geometry.distance(starts, ends, kind)[:3, :3] == 0).all()
        assert (geometry.distance(starts, ends, kind)[3, :3] > 0).all()
    assert (geometry.divergence(starts, ends)[:3, :3] == 0).all()


def test_longer_is_more_divergent_at_one_origin():
    """Fig. 3: the angle kept, the divergence grows with the difference in length."""
    origin = torch.zeros(2, 2, dtype=torch.float64)
    values = []
    for length in (1.0, 2.0, 4.0, 8.0):
        ends = torch.tensor(
            [[1.0, 0.0], [length * math.cos(0.3), length * math.sin(0.3)]], dtype=torch.float64
        )
        values.append(float(geometry.divergence(origin, ends)[0, 1]))
    assert values == sorted(values) and values[0] < values[-1] < 1


# ---- all pairs at once against one pair at a time


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 6), p=st.integers(1, 5), seed=st.integers(0, 10**6), still=st.booleans())
def test_equals_the_pair_loop(n, p, seed, still):
    starts = torch.randn(n, p, generator=stream(seed, "s"), dtype=torch.float64)
    ends = torch.randn(n, p, generator=stream(seed, "e"), dtype=torch.float64)
    if still:
        ends[0] = starts[0]  # a client that did not move
    omega, distance = loop(starts, ends)
    torch.testing.assert_close(geometry.divergence(starts, ends), omega, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(geometry.distance(starts, ends), distance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_realistic_models(dtype):
    """Models of 20,000 numbers around 0.05 that moved by a thousandth, from 3 clusters that are as
    far apart.
    """
    g = stream(1, "realistic")
    base = 0.05 * torch.randn(20_000, generator=g)
    clusters = base + 5e-5 * torch.randn(3, 20_000, generator=g)
    starts = clusters[torch.arange(12) % 3]
    ends = starts + 5e-5 * torch.randn(12, 20_000, generator=g)
    starts, ends = starts.to(dtype), ends.to(dtype)
    omega, distance = loop(starts, ends)
    assert geometry.distance(starts, ends).dtype == dtype
    torch.testing.assert_close(geometry.divergence(starts, ends).double(), omega, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        geometry.distance(starts, ends).double(), distance, rtol=1e-5, atol=0
    )


def test_small_gaps_beside_large_ones():
    """Clusters a thousand apart, members a thousandth: a Gram matrix in single precision cannot
    tell them.
    """
    g = stream(2, "drift")
    centre = torch.randn(2, 5_000, generator=g) * 1000 / math.sqrt(10_000)
    starts = centre[torch.arange(8) // 4]
    ends = starts + 1e-3 / math.sqrt(10_000) * torch.randn(8, 5_000, generator=g)
    omega, distance = loop(starts, ends)
    assert distance[0, 1] < 1e-2 < 100 < distance[0, 4]
    torch.testing.assert_close(
        geometry.distance(starts, ends).double(), distance, rtol=1e-3, atol=0
    )
    torch.testing.assert_close(geometry.divergence(starts, ends).double(), omega, rtol=0, atol=1e-3)


def test_clients_of_a_cluster_share_a_start():
    models, ends = (
        torch.randn(3, 40, generator=stream(0, "m")),
        torch.randn(8, 40, generator=stream(0, "e")),
    )
    of = torch.tensor([2, 0, 0, 1, 2, 2, 0, 1])
    for kind in geometry.KINDS:
        each, shared = (
            geometry.distance(models[of], ends, kind),
            geometry.distance(models, ends, kind, of),
        )
        torch.testing.assert_close(each, shared, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        geometry.divergence(models, ends, of), loop(models[of], ends)[0].float()
    )


def test_symmetric_with_a_zero_diagonal():
    starts, ends = (torch.randn(9, 50, generator=stream(0, name)) for name in "se")
    for kind in geometry.KINDS:
        d = geometry.distance(starts, ends, kind)
        assert (d.diagonal() == 0).all() and (d >= 0).all()
        torch.testing.assert_close(d, d.mT)


def test_the_other_kinds_by_hand():
    starts, ends = updates(([0.0, 0.0], [3.0, 0.0]), ([0.0, 4.0], [0.0, 8.0]))
    assert geometry.distance(starts, ends, "euclidean")[0, 1] == pytest.approx(math.sqrt(73))
    assert geometry.distance(starts, ends, "cosine")[0, 1] == 1  # (3, 0) and (0, 4)
    # <AB - CD, B - D> = (3, -4) (3, -8) = 41, over sqrt(73) (3 + 4)
    assert geometry.distance(starts, ends, "divergence")[0, 1] == pytest.approx(
        1 + 41 / (7 * math.sqrt(73))
    )


def test_unknown_kind_says_which_there_are():
    with pytest.raises(
        ValueError, match=r"kind='manhattan'.*'complete', 'divergence', 'euclidean', 'cosine'"
    ):
        geometry.distance(torch.zeros(2, 2), torch.zeros(2, 2), "manhattan")


def test_a_nan_is_not_taken_for_a_distance():
    starts, ends = torch.zeros(3, 2), torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [0.0, 1.0]])
    assert geometry.distance(starts, ends)[0, 1].isnan()


def test_cosine_by_hand_and_for_null_vectors():
    v = torch.tensor([[1.0, 0.0], [1.0, 1.0], [-2.0, 0.0], [0.0, 0.0]])
    r = math.sqrt(0.5)
    expected = torch.tensor([[1, r, -1, 0], [r, 1, -r, 0], [-1, -r, 1, 0], [0, 0, 0, 0.0]])
    torch.testing.assert_close(geometry.cosine(v), expected)
    torch.testing.assert_close(geometry.cosine(v[:1], v[1:]), expected[:1, 1:])


# ---- Dunn index


def test_dunn_by_hand():
    """Points 0, 1 | 4, 6 on a line: nearest across 3, widest within 2."""
    points = torch.tensor([[0.0], [1.0], [4.0], [6.0]])
    gaps = geometry.gaps(points)
    assert geometry.dunn(gaps, torch.tensor([0, 0, 1, 1])) == pytest.approx(1.5)
    assert geometry.dunn(gaps, torch.tensor([0, 1, 0, 1])) == pytest.approx(1 / 5)  # {0, 4}, {1, 6}


def test_dunn_without_one_side():
    gaps = geometry.gaps(torch.tensor([[0.0], [1.0], [4.0]]))
    assert math.isnan(geometry.dunn(gaps, torch.tensor([3, 3, 3])))
    assert geometry.dunn(gaps, torch.tensor([2, 0, 1])) == math.inf


def test_no_pair_loop():
    """300 clients: at least 20 times faster than one pair at a time (400 of the 45,000 pairs are
    timed).
    """
    starts = torch.randn(300, 20_000, generator=stream(0, "many"))
    ends = starts + 1e-3 * torch.randn(300, 20_000, generator=stream(1, "many"))
    times = []
    for work in (lambda: loop(starts[:20], ends[:20]), lambda: geometry.distance(starts, ends)):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    assert times[1] * 20 < times[0] * (300 * 300 / 2) / (20 * 20)
