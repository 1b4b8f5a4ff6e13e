"""Compiled decisions of perceptrons: images with a background, and models that cannot win any
more."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust.algorithms import Joint
from fedclust.algorithms.joint import Seen
from fedclust.fast import candidates
from fedclust.fast.choice import margin, room
from fedclust.models import mlp
from fedclust.training import LocalSGD
from tests.algorithms.test_joint import loop
from tests.fast.test_choice import chosen_step, decisions


def batches(n, b, side, background, ink, seed=0):
    """Images of which a part is one value, of 1 to b real samples each; labels of 3 classes;
    directions of 3 models."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, b, 1, side, side, generator=draw, dtype=torch.float64)
    x = torch.where(torch.rand(x.shape, generator=draw) < ink, x, background)
    mask = torch.arange(b) < torch.randint(1, b + 1, (n, 1), generator=draw)
    return x, torch.randint(3, (n, b), generator=draw), mask


@settings(max_examples=40, deadline=None)
@given(
    side=st.integers(1, 6),
    hidden=st.lists(st.integers(1, 20), max_size=2),
    batch=st.integers(1, 70),
    background=st.sampled_from([0.0, -1.0, 2.5]),
    ink=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    threads=st.sampled_from([1, 3]),
)
def test_a_background_changes_nothing(side, hidden, batch, background, ink, threads):
    model = mlp((1, side, side), 3, tuple(hidden))
    rows = torch.stack([model.init(0, k) for k in range(3)]).double()
    directions = rows.roll(1, 0)
    x, y, mask = batches(4, batch, side, background, ink)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    choice = torch.tensor([0, 2, 0, 0])
    try:
        seen = decisions(model, rows, directions, x, y, mask)
        ends = chosen_step(model, rows, choice, x, y, mask, lr=0.3)
    finally:
        torch.set_num_threads(before)
    for fast, slow in zip(seen, loop(model, rows, directions, x, y, mask), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
    for k in (0, 2):
        for_k, net = (choice == k).nonzero()[:, 0], model.module(rows[k])
        losses = [
            torch.nn.functional.cross_entropy(net(x[i][mask[i]]), y[i][mask[i]]) for i in for_k
        ]
        torch.stack(losses).mean().backward()
        step = torch.cat([w.grad.flatten() for w in net.parameters()])
        torch.testing.assert_close(ends[k], rows[k] - 0.3 * step, rtol=0, atol=1e-9)
    assert torch.equal(ends[1], rows[1])
    passes = room(model, rows, y)
    decisions(model, rows, directions, x, y, mask, passes=passes)
    assert torch.equal(
        passes[1], seen[0].argmin(1)
    )  # without a sign, the loss is all that is known
    assert torch.equal(
        chosen_step(model, rows, choice, x, y, mask, lr=0.3, passes=passes), ends
    )  # known or not, to the last bit


@pytest.mark.parametrize(
    "n", [0, 1, candidates.TOGETHER - 1, candidates.TOGETHER, 2 * candidates.TOGETHER + 7]
)
@pytest.mark.parametrize("background", [0.0, -0.4])
def test_predictions_are_the_modules(n, background):
    model, draw = mlp((1, 5, 5), 4, (9, 3)), torch.Generator().manual_seed(n)
    x = torch.where(
        torch.rand(n, 1, 5, 5, generator=draw) < 0.3,
        torch.rand(n, 1, 5, 5, generator=draw),
        background,
    )
    row = model.init(0)
    torch.testing.assert_close(model.logits(row, x), model.module(row).eval()(x).detach())
    with pytest.raises(ValueError, match=r"images are \(1, 2, 2\)"):
        model.logits(row, x[..., :2, :2])


@pytest.mark.parametrize("sign", ["descent", "printed"])
@pytest.mark.parametrize("lam", [0.02, 0.2, 0.6, 1.0])
def test_models_that_cannot_win_are_left_out_and_nobody_chooses_otherwise(lam, sign):
    model = mlp(
        (1, 4, 4), 3, (40,)
    )  # more than a vector has lanes: a rough look is not an exact one
    rows = torch.stack([model.init(0, k) for k in range(5)]).double() * 2
    dw, (x, y, mask) = rows.roll(1, 0), batches(40, 6, 4, 0.0, 0.5)
    method = Joint(LocalSGD(model, lr=0.1), k=5, lam=lam, sign=sign)
    count, toward = mask.sum(1, keepdim=True), -1 if sign == "descent" else 1
    whole = loop(model, rows, dw, x, y, mask)
    passes, limit = room(model, rows, y), margin(method, count)
    some = decisions(model, rows, dw, x, y, mask, margin=limit, sign=toward, passes=passes)
    labels, found = (method.score(Seen(*seen, None), dw, count).argmax(1) for seen in (whole, some))
    assert torch.equal(found, labels)
    if lam < 1:
        assert torch.equal(passes[1], labels)  # what is kept for the step is what it needs
    given = model, rows, labels, x, y, mask
    ends = [chosen_step(*given, lr=0.1, passes=known) for known in (None, passes)]
    assert torch.equal(*ends)
    looked_at, exact = some[2] > 0, (some[1] - whole[1]).abs() < 1e-12
    assert (toward * (some[1] - whole[1])[looked_at & ~exact] > 0).all()  # bounds
    if lam == 1:
        assert exact.all()
    else:
        assert (looked_at & exact).sum() < looked_at.sum() < 200
