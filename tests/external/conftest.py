"""Published settings of published methods, run by this library and compared with the published
numbers.

`make external` runs all of them, a quarter of an hour on two cores; `make test` leaves those
marked `external` out. They need real data, which is fetched once. A corridor says how near a
published number we must come: the papers show one run or five, tune the learning rate they do not
print, or use data that are prepared a little differently.
"""

import pytest
import torch

from fedclust import datasets


@pytest.fixture
def images():
    """A data set with pixels in [0, 1], as these papers have them. No files, no test."""

    def load(name):
        try:
            data = datasets.load(name)
        except Exception as error:  # no network: nothing to compare
            pytest.skip(f"{name} is not there and cannot be fetched: {error}")
        return data.scaled((0.0,), (1.0,))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load
    torch.set_num_threads(threads)
