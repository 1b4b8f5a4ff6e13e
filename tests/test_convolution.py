"""The fast first layer: by hand, and against PyTorch's own layers, whatever the shape, the ties and the infinities."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from fedclust.convolution import FirstLayer
from fedclust.models import ColourBlock, cnn

COLOUR = cnn((3, 12, 12), 4, (3, 2), 3, "last", ()), cnn((3, 16, 16), 4, (6, 5), 5, "last", (7,))


def plain(x, w, b):
    return nn.functional.max_pool2d(nn.functional.conv2d(x, w, b), 2).relu()


def test_by_hand():
    """A 6x6 picture of one colour, all ones but x[0, 0] = 3; kernel of ones, bias 1: z = [[28, 26], [26, 26]], and the
    second channel, with the kernel's sign turned and no bias, stays below zero. The gradient 2 of the output goes to
    z[0, 0] alone, so dw = 2 x[:5, :5] and db = 2."""
    x = torch.ones(1, 1, 6, 6)
    x[0, 0, 0, 0] = 3
    w = torch.stack([torch.ones(1, 5, 5), -torch.ones(1, 5, 5)]).requires_grad_()
    b = torch.tensor([1.0, 0.0], requires_grad=True)
    out = FirstLayer.apply(x, w, b)
    assert out.tolist() == [[[[28.0]], [[0.0]]]]
    dw, db = torch.autograd.grad(out, [w, b], torch.full_like(out, 2))
    assert torch.equal(dw[0, 0], 2 * x[0, 0, :5, :5])
    assert not dw[1].any()
    assert db.tolist() == [2, 0]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(2, 7), st.integers(6, 13), st.integers(6, 13), st.booleans())
def test_same_as_pytorch(n, colours, channels, height, width, coarse):
    """`coarse` numbers are small integers: maxima are tied, and the first of them gets the gradient."""
    draw = torch.Generator().manual_seed(n + 10 * channels + 100 * height)
    x, w, b = (
        torch.randn(s, generator=draw, dtype=torch.float64)
        for s in ((n, colours, height, width), (channels, colours, 5, 5), (channels,))
    )
    if coarse:
        x, w, b = x.round().clamp(0, 1), w.round().clamp(0, 1), b.round()
    w.requires_grad_()
    b.requires_grad_()
    ours, theirs = FirstLayer.apply(x, w, b), plain(x, w, b)
    weights = torch.randn(theirs.shape, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(ours, theirs)
    for mine, its in zip(*(torch.autograd.grad(out, [w, b], weights) for out in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_diverged_layer_stays_visible(bad):
    x, w, b = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 5, 5), torch.zeros(2)
    w[1, 2, 3, 4] = bad
    torch.testing.assert_close(FirstLayer.apply(x, w, b), plain(x, w, b), equal_nan=True)
    x[0, 1, 0, 0] = math.nan  # in one of the four places under the maximum
    torch.testing.assert_close(FirstLayer.apply(x, w, b), plain(x, w, b), equal_nan=True)


def test_a_network_takes_it_and_learns_the_same():
    """One step of the whole network, layer by layer and as it is; `cnn` chooses it for 5x5 on colour images only."""
    model = cnn((3, 16, 16), 4, (6, 5), 5, "each", (7,))
    blocks = [type(model.module(model.init(0))[0]), *(type(m.module(m.init(0))[0]) for m in COLOUR)]
    assert [kind is ColourBlock for kind in blocks] == [True, False, False]
    net = model.module(model.init(0).double())
    x, y = torch.rand(9, 3, 16, 16, dtype=torch.float64), torch.arange(9) % 4
    slow = nn.Sequential(*net[0], *list(net)[1:])
    fast, same = (torch.autograd.grad(cross_entropy(f(x), y), list(net.parameters())) for f in (net, slow))
    for mine, its in zip(fast, same, strict=True):
        torch.testing.assert_close(mine, its)


def test_the_common_way_where_the_fast_one_does_not_fit():
    """Watched layers, gradients of the pictures, lower precision."""
    model = cnn((3, 16, 16), 4, (6, 5), 5, "each", (7,))
    net, x = model.module(model.init(0)), torch.rand(2, 3, 16, 16)
    seen = []
    hook = net[0][1].register_forward_hook(lambda *_: seen.append(1))
    watched = net(x)
    hook.remove()
    assert seen
    torch.testing.assert_close(watched, net(x))
    assert seen == [1]
    (slope,) = torch.autograd.grad(net(x.requires_grad_()).sum(), x)
    assert slope.abs().sum() > 0
    with torch.autocast("cpu", torch.bfloat16):
        assert net(x.detach()).dtype == torch.bfloat16
