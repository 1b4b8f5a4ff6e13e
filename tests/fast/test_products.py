"""Sums of products in panels, and what is turned over."""

import numpy as np
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


def test_a_part_is_turned_over():
    a, b = np.random.default_rng(0).random((5, 4)).astype(np.float32), np.zeros((5, 4), np.float32)
    products.turn(a[:4, :3], b[:3, :4])
    assert np.array_equal(b[:3], a[:4, :3].T) and not b[3:].any()
