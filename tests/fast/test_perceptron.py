"""Compiled training of perceptrons: sums of products, and images with a background."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust import fast
from fedclust.fast import perceptron
from fedclust.federation import Federation
from fedclust.models import mlp
from fedclust.training import LocalSGD


def clients(images):
    draw = torch.Generator().manual_seed(1)
    data = [(x, torch.randint(3, (len(x),), generator=draw)) for x in images]
    return Federation.stack(
        {"train": data, "test": data}, group=torch.zeros(len(data), dtype=torch.long), classes=3
    )


@settings(max_examples=40, deadline=None)
@given(
    side=st.integers(1, 6),
    hidden=st.lists(st.integers(1, 20), max_size=2),
    background=st.sampled_from([0.0, -1.0, 2.5]),
    ink=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    batch=st.integers(1, 9),
    more=st.sampled_from([{}, {"momentum": 0.9}, {"prox": 0.1}, {"weight_decay": 0.1}]),
)
def test_a_background_changes_nothing(side, hidden, background, ink, batch, more):
    """Images of which a part is one value, whatever it is, train as in the plain loop."""
    draw = torch.Generator().manual_seed(side)
    images = [torch.randn(n, 1, side, side, generator=draw, dtype=torch.float64) for n in (7, 1)]
    images = [torch.where(torch.rand(x.shape, generator=draw) < ink, x, background) for x in images]
    fed, model = clients(images), mlp((1, side, side), 3, tuple(hidden))
    theta = torch.stack([model.init(0), model.init(1)]).double()
    outs = [
        LocalSGD(model, lr=0.1, epochs=3, batch=batch, backend=backend, **more)(
            theta, fed, torch.arange(2), 0, 0
        )
        for backend in ("stacked", "loop")
    ]
    torch.testing.assert_close(*outs, rtol=0, atol=1e-9)


def test_the_background_by_hand():
    """Corner 2 on three of four pixels is one; a corner that half of the pixels have is none."""
    assert perceptron.background(np.array([2.0, 2, 2, 5])) == 2
    assert perceptron.background(np.array([2.0, 2, 3, 5])) == 0


@pytest.mark.parametrize("label", [3, -1, 99])
def test_labels_that_do_not_fit_are_named(label):
    fed = clients([torch.zeros(4, 1, 2, 2)])
    fed.y[0, 1] = label
    model = mlp((1, 2, 2), 3, (5,))
    with pytest.raises(ValueError, match=f"client 0: labels .*{label}"):
        LocalSGD(model, lr=0.1)(model.init(0)[None], fed, torch.tensor([0]), 0, 0)


def test_images_that_do_not_fit_are_named():
    model = mlp((1, 3, 3), 3, (5,))
    with pytest.raises(ValueError, match=r"client 0: images are \(1, 2, 2\)"):
        LocalSGD(model, lr=0.1)(
            model.init(0)[None], clients([torch.zeros(4, 1, 2, 2)]), torch.tensor([0]), 0, 0
        )


def test_a_diverged_client_harms_no_other():
    draw = torch.Generator().manual_seed(0)
    images = [torch.randn(6, 1, 3, 3, generator=draw) for _ in range(2)]
    fed, model = clients(images), mlp((1, 3, 3), 3, (5,))
    theta, train = torch.stack([model.init(0)] * 2), LocalSGD(model, lr=0.1, batch=2)
    alone = train(theta[1:], fed, torch.tensor([1]), 0, 0)
    theta[0] = torch.nan
    out = fast.train(train, theta, fed, torch.arange(2), 0, 0)
    assert out[0].isnan().all()
    assert torch.equal(out[1], alone[0])


def test_arrays_begin_with_a_line_of_the_cache():
    row, widths = np.zeros(7 * 5 + 5, np.float32), np.array([7, 5])
    made = [
        [*perceptron.load(row, widths, 16), *perceptron.spaces(widths, 3, 16, row)[0]]
        for _ in range(20)
    ]
    assert {a.ctypes.data % 64 for arrays in made for a in arrays} == {0}
