"""Sums of products in panels, and squares turned over."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust.fast import products


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(0, 23),
    k=st.integers(0, 9),
    n=st.integers(1, 4),
    spare=st.integers(0, 3),
    real=st.sampled_from([np.float32, np.float64]),
)
def test_sums_of_products_in_panels(m, k, n, spare, real):
    """Whole numbers, so that every order of summation gives the same."""
    lanes, draw = products.VECTOR // real(0).itemsize, np.random.default_rng(m + 100 * k)
    to, of = (np.sort(draw.permutation(size + spare)[:size]) for size in (m, k))
    c, a, b = (
        draw.integers(-9, 9, s).astype(real)
        for s in ((n, m + spare, lanes), (m, k), (n, k + spare, lanes))
    )
    expected = c.copy()
    expected[:, to] += a @ b[:, of]
    products.add_product(c[:, :, :lanes], to, a[:, :k], b[:, :, :lanes], of)
    assert np.array_equal(c, expected)


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("missing", [(0, 0), (1, 0), (0, 3)])
def test_a_square_and_what_is_none_are_turned_over(real, missing):
    lanes = products.VECTOR // real(0).itemsize
    a = (
        np.random.default_rng(0)
        .random((lanes + 2, lanes + 1))
        .astype(real)[: lanes - missing[0], : lanes - missing[1]]
    )
    b = np.zeros((lanes + 3, lanes + 2), real)
    products.turn(a, b[: a.shape[1], : a.shape[0]])
    assert np.array_equal(b[: a.shape[1], : a.shape[0]], a.T)
    assert not b[a.shape[1] :].any() and not b[:, a.shape[0] :].any()
