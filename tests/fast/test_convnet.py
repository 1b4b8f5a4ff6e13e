"""Compiled convolutional networks: a block by hand, and against PyTorch's own layers."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedclust.fast import convnet
from fedclust.fast.products import VECTOR
from fedclust.fast.training import geometry
from fedclust.models import cnn
from fedclust.privacy import DPSGD
from fedclust.training import LocalSGD
from tests.test_training import clients, plain, starts

LANES = VECTOR // 4
OPTIONS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "all": {"momentum": 0.5, "weight_decay": 0.05, "prox": 0.3},
    "pulled": {"weight_decay": 0.05, "prox": 0.3},
}


def block(x, w, b, pooled=True):
    """One picture x (in, H, W) through a block: outputs and places of maxima, (out, h, w) each."""
    (n_in, *side), n_out, kernel, lanes = x.shape, len(w), w.shape[2], VECTOR // x.element_size()
    side, sides = np.array(side), [(s - kernel + 1) // (1 + pooled) for s in side]
    picture = np.zeros(convnet.room(n_in, side, lanes), x.numpy().dtype)
    picture[: x.numel()] = x.flatten()
    z = np.zeros((n_out, convnet.places(side, kernel, lanes)), picture.dtype)
    out, where = (
        np.zeros(n_out * sides[0] * sides[1], picture.dtype),
        np.zeros((n_out, *sides), np.int32),
    )
    convnet.block(torch.cat([w.flatten(), b]).numpy(), picture, z, out, where, side, kernel)
    return torch.from_numpy(out).view(where.shape), where, picture, side


def test_a_block_by_hand():
    """A 6x6 picture of one colour, all ones but x[0, 0] = 3; kernel of ones, bias 1: z = [[28, 26],
    [26, 26]], and the second channel, with the kernel's sign turned and no bias, stays below zero.
    The gradient 2 of the output goes to z[0, 0] alone, so dw = 2 x[:5, :5], db = 2 and dx = 2 on
    the first five lines and columns."""
    x = torch.ones(1, 6, 6)
    x[0, 0, 0] = 3
    w, b = torch.stack([torch.ones(1, 5, 5), -torch.ones(1, 5, 5)]), torch.tensor([1.0, 0.0])
    out, where, picture, side = block(x, w, b)
    assert out.tolist() == [[[28.0]], [[0.0]]]
    assert where.tolist() == [[[0]], [[-1]]]
    kerns, dw, dx, across = (
        np.zeros(shape, np.float32)
        for shape in ((2, 25, LANES), (2, 5, 5, LANES), (36, LANES), (36, LANES))
    )
    for o in range(2):
        convnet.side_by_side(w[o].flatten().numpy(), kerns[o], 1)
    above, live, delta = (
        np.full((1, 2), 2, np.float32),
        np.zeros(1, np.int64),
        np.zeros(1, np.float32),
    )
    runs, db, rest = (
        np.zeros((2, 1, 5, convnet.RUN), np.float32),
        np.zeros(2, np.float32),
        (picture, above, where),
    )
    marks, space = (live, delta), (across, dx)
    convnet.back(*rest, side, 5, marks, (runs, db), kerns[:0], space)
    assert not dx.any()  # as a first block
    dw_first, db[:] = runs[:, 0, :, :5], 0
    convnet.back(*rest, side, 5, marks, (dw, db), kerns, space)
    assert np.array_equal(dw[..., 0], dw_first)
    assert not dw[..., 1:].any()
    dw = dw[..., 0]
    assert np.array_equal(dw[0], 2 * x[0, :5, :5].numpy())
    assert not dw[1].any()
    assert db.tolist() == [2, 0]
    assert dx[:, 0].reshape(6, 6).tolist() == [[2.0] * 5 + [0.0]] * 5 + [[0.0] * 6]
    assert not dx[:, 1:].any()


@settings(max_examples=40, deadline=None)
@given(
    colours=st.integers(1, 3),
    channels=st.integers(1, 11),
    height=st.integers(9, 13),
    width=st.integers(9, 13),
    kernel=st.integers(1, 8),
    pooled=st.booleans(),
    coarse=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_block_is_pytorchs(colours, channels, height, width, kernel, pooled, coarse, dtype):
    """`coarse` numbers are small integers: maxima are tied."""
    draw = torch.Generator().manual_seed(10 * channels + 100 * height + width)
    shapes = (colours, height, width), (channels, colours, kernel, kernel), (channels,)
    x, w, b = (torch.randn(s, generator=draw, dtype=dtype) for s in shapes)
    if coarse:
        x, w, b = x.round().clamp(0, 1), w.round().clamp(0, 1), b.round()
    theirs = nn.functional.max_pool2d(nn.functional.conv2d(x[None], w, b), 1 + pooled).relu()[0]
    torch.testing.assert_close(block(x, w, b, pooled)[0], theirs)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_diverged_block_stays_visible(bad, pooled):
    x, w, b = torch.rand(3, 8, 8), torch.rand(2, 3, 5, 5), torch.zeros(2)
    w[1, 2, 3, 4] = bad
    for x[0, 0, 0] in (0.5, math.nan):  # in one of the four places under a maximum
        theirs = nn.functional.max_pool2d(nn.functional.conv2d(x[None], w, b), 1 + pooled).relu()[0]
        torch.testing.assert_close(block(x, w, b, pooled)[0], theirs, equal_nan=True)


@settings(max_examples=30, deadline=None)
@given(
    colours=st.sampled_from([1, 3]),
    channels=st.lists(st.integers(1, 5), min_size=1, max_size=2),
    hidden=st.lists(st.integers(1, 9), max_size=2),
    more=st.integers(0, 3),
    batch=st.integers(1, 6),
    options=st.sampled_from(sorted(OPTIONS)),
    kernel=st.sampled_from([2, 3, 5]),
    pool=st.sampled_from(["each", "last"]),
)
def test_training_is_the_plain_loops(colours, channels, hidden, more, batch, options, kernel, pool):
    """Any depth, widths and sides, odd ones too."""
    side = 6 if len(channels) == 1 else 16
    model = cnn((colours, side + more, side + 2), 3, tuple(channels), kernel, pool, tuple(hidden))
    fed, train = (
        clients((7, 1), model.shape),
        LocalSGD(model, lr=0.1, batch=batch, epochs=2, **OPTIONS[options]),
    )
    theta = starts(model, 2)
    out = replace(train, backend="stacked")(theta, fed, torch.arange(2), 0, 1)
    for i in range(2):
        torch.testing.assert_close(out[i], plain(train, theta[i], fed, i, t=1), rtol=0, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(
    clip=st.sampled_from([0.01, 0.3, 50.0]),
    noise=st.sampled_from([0.0, 0.7]),
    momentum=st.sampled_from([0.0, 0.9]),
    pool=st.sampled_from(["each", "last"]),
)
def test_private_training_is_the_loops(clip, noise, momentum, pool):
    """The loop's is compared with Opacus' in test_privacy."""
    model = cnn((1, 16, 17), 3, (2, 3), 5, pool, (5,))
    fed, theta = clients((13, 5), model.shape), starts(model, 2)
    train = DPSGD(
        model, lr=0.1, batch=4, epochs=2, noise_multiplier=noise, clip=clip, momentum=momentum
    )
    outs = [
        replace(train, backend=way)(theta, fed, torch.arange(2), 0, 0)
        for way in ("stacked", "loop")
    ]
    torch.testing.assert_close(*outs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("pool", ["each", "last"])
@pytest.mark.parametrize("n", [0, 1, 64, 65, 150])
def test_predictions_are_the_modules(n, pool):
    model = cnn((3, 16, 16), 4, (6, 5), 5, pool, (7,))
    row, x = model.init(0), torch.rand(n, 3, 16, 16)
    torch.testing.assert_close(model.logits(row, x), model.module(row).eval()(x).detach())
    with pytest.raises(ValueError, match=r"images are \(3, 8, 8\)"):
        model.logits(row, x[..., :8, :8])


def test_which_networks_it_takes():
    assert cnn((3, 32, 32), 10, (6, 16), 5, "each", (120, 84)).blocks == (3, 6, 16)
    assert cnn((3, 32, 32), 10, (6, 16), 5, "each", (120, 84)).dense == (400, 120, 84, 10)
    assert cnn((1, 14, 14), 47, (6, 16), 3, "each", (256,)).kernel == 3
    sides = geometry(cnn((1, 28, 28), 10, (32, 64), 3, "last", (128,)))[0]
    assert sides.tolist() == [[28, 28], [26, 26], [12, 12]]
    other = cnn((1, 28, 28), 10, (4,), 9, "each", ())
    with pytest.raises(ValueError, match="blocks of convolution"):
        LocalSGD(other, lr=0.1, backend="stacked")
