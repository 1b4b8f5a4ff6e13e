"""Products that leave out zeros: which they are, who goes with whom, and that nothing else is left
out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust.fast import sparse
from fedclust.fast.perceptron import padded
from fedclust.fast.products import VECTOR, in_panels


def with_zeros(lines, width, zeros, real, seed=0):
    """Whole numbers, so that every order of summation gives the same, in whole vectors; junk behind
    the width."""
    draw, lanes = np.random.default_rng(seed), VECTOR // real(0).itemsize
    a = draw.integers(-9, 9, (lines, padded(width, lanes))).astype(real)
    a[:, :width][draw.random((lines, width)) < zeros] = 0
    return a


def groups(n, width, few=2):
    return sparse.groups(width, np.arange(n), few)


def test_bits_by_hand():
    a = with_zeros(2, 70, 1.0, np.float32)
    a[0, [0, 3, 69]] = 1, np.nan, -2
    a[1, 64] = 5
    found = np.zeros((2, 2), np.uint64)
    sparse.bits(a, 70, found)
    assert found.tolist() == [[0b1001, 0b100000], [0, 0b1]]
    assert [sparse.ones(np.uint64(word)) for word in (0, 0b1001, 2**64 - 1)] == [0, 2, 64]
    turned = np.full((70, 1), 7, np.uint64)
    sparse.turn_bits(found, 2, 70, turned)
    assert {i: int(word) for i, (word,) in enumerate(turned) if word} == {
        0: 0b01,
        3: 0b01,
        69: 0b01,
        64: 0b10,
    }


@settings(max_examples=30, deadline=None)
@given(lines=st.integers(1, 150), width=st.integers(1, 150), zeros=st.sampled_from([0.0, 0.5, 1.0]))
def test_bits_turned_over_are_the_columns(lines, width, zeros):
    a = with_zeros(lines, width, zeros, np.float64, lines)
    alive, turned, columns = (
        np.zeros((n, sparse.parts(m, 64)), np.uint64)
        for n, m in ((lines, width), (width, lines), (width, lines))
    )
    sparse.bits(a, width, alive)
    sparse.turn_bits(alive, lines, width, turned)
    across = np.zeros((width, padded(lines, 8)))
    across[:, :lines] = a[:, :width].T
    sparse.bits(across, lines, columns)
    assert np.array_equal(turned, columns)


def test_the_most_alike_are_side_by_side():
    alive = np.array([[0b1111], [0b1000], [0b0111], [0b1001]], np.uint64)
    order = np.zeros(4, np.int64)
    sparse.side_by_side(alive, order)
    assert order.tolist() == [
        0,
        2,
        3,
        1,
    ]  # from 1111 to 0111 (1 bit), then 1001 (3 bits; 1000: 4), then 1000


def test_two_lines_go_together_unless_they_have_hardly_a_zero():
    few = groups(7, 64)
    few[0][:] = [[0b1], [0b11], [0b100], [0], [0b1000], [0], [0b10]]
    sparse.unite(7, few)
    assert few[3].tolist() == [2, 7, 2]
    assert few[2][:4, 0].tolist() == [0b1, 0b111, 0b1000, 0b10]  # of one line, two, two, two
    few[0][:] = 2**64 - 1
    sparse.unite(7, few)
    assert few[3].tolist() == [2, 7, 0]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 70),
    width=st.integers(1, 200),
    panels=st.integers(1, 9),
    zeros=st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]),
    real=st.sampled_from([np.float32, np.float64]),
    few=st.sampled_from([1, 2]),
)
def test_only_zeros_are_left_out(n, width, panels, zeros, real, few):
    """a b and a^T d, and what a^T d is to c, as NumPy has them, for lines in any order."""
    draw, lanes = np.random.default_rng(n), VECTOR // real(0).itemsize
    a, lines = with_zeros(n, width, zeros, real, n), sparse.groups(width, draw.permutation(n), 2)
    b, c = (draw.integers(-9, 9, (panels, m, lanes)).astype(real) for m in (width, n))
    expected = c + a[:, :width] @ b
    sparse.multiply(c[:, :, :lanes], a, width, b[:, :, :lanes], lines)
    assert np.array_equal(c, expected)
    d = draw.integers(-9, 9, (n, panels * lanes)).astype(real)
    c, seen = draw.integers(-9, 9, (panels, width, lanes)).astype(real), np.zeros((2, lanes), real)
    product = a[:, :width].T @ in_panels(d, lanes)
    columns = groups(width, n, few)
    sparse.multiply_turned(c[:, :, :lanes], a, width, d, lines, columns, seen)
    rounding = 1e-5 * float(np.abs(c * product).sum())
    assert seen[0].sum() == pytest.approx((c * product).sum(), abs=rounding)
    assert seen[1].sum() == pytest.approx((product.astype(float) ** 2).sum(), rel=1e-4)
    expected = c + product
    sparse.multiply_turned(c[:, :, :lanes], a, width, d, lines, columns, seen[:0])
    assert np.array_equal(c, expected)
