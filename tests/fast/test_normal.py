"""Normal numbers by name: exact quantiles, their distribution, and that each has its place."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedclust.fast import normal
from fedclust.rng import key

KEY = key(0, "test")


def test_they_are_quantiles_of_their_bits():
    """Against the exact quantile function, at the bits that the generator gives and at the
    outermost that it can."""
    drawn = np.array([int(normal.bits(np.uint64(KEY | 1), np.uint64(i))) for i in range(20_000)])
    y = ((drawn & 0x7FFFFFFF) + 0.5) / 2**31
    expected = np.where(drawn >> 31, 1, -1) * stats.norm.ppf(y / 2)
    np.testing.assert_allclose(normal.normal(20_000, KEY), expected, rtol=0, atol=2e-6)


def test_their_distribution():
    z = normal.normal(2**20, KEY).double().numpy()
    assert stats.kstest(z, "norm").pvalue > 0.001
    assert abs(z.mean()) < 4 / 2**10
    assert abs(z.std() - 1) < 4 / 2**10.5
    assert 4.3 < abs(z).max() < 6.6  # 2^20 numbers, resolved to 2^-31
    for apart in (1, 2, 16, 784):
        assert abs(np.corrcoef(z[apart:], z[:-apart])[0, 1]) < 4 / 2**10
    other = normal.normal(2**20, key(1, "test")).numpy()
    assert abs(np.corrcoef(z, other)[0, 1]) < 4 / 2**10


@given(first=st.integers(0, 2**40), size=st.integers(0, 70), skip=st.integers(0, 40))
@settings(deadline=None)
def test_each_has_its_place(first, size, skip):
    whole = normal.normal(size + skip, KEY, first)
    assert torch.equal(whole[skip:], normal.normal(size, KEY, first + skip))
