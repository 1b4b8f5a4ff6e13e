"""Compiled decisions of perceptrons: images with a background, and models that cannot win any
more."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust import fast
from fedclust.algorithms import Joint
from fedclust.algorithms.joint import Seen
from fedclust.fast import candidates
from fedclust.fast.choice import margin
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
    for found, slow in zip(seen, loop(model, rows, directions, x, y, mask), strict=True):
        torch.testing.assert_close(found, slow, rtol=1e-9, atol=1e-9)
    for k in (0, 2):
        for_k, net = (choice == k).nonzero()[:, 0], model.module(rows[k])
        losses = [
            torch.nn.functional.cross_entropy(net(x[i][mask[i]]), y[i][mask[i]]) for i in for_k
        ]
        torch.stack(losses).mean().backward()
        step = torch.cat([w.grad.flatten() for w in net.parameters()])
        torch.testing.assert_close(ends[k], rows[k] - 0.3 * step, rtol=0, atol=1e-9)
    assert torch.equal(ends[1], rows[1])


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
    model = mlp((1, 4, 4), 3, (40,))
    rows = torch.stack([model.init(0, k) for k in range(5)]).double() * 2
    dw, (x, y, mask) = rows.roll(1, 0), batches(40, 6, 4, 0.0, 0.5)
    method = Joint(LocalSGD(model, lr=0.1), k=5, lam=lam, sign=sign)
    count, toward = mask.sum(1, keepdim=True), -1 if sign == "descent" else 1
    whole = loop(model, rows, dw, x, y, mask)
    some = decisions(model, rows, dw, x, y, mask, margin=margin(method, count), sign=toward)
    labels, found = (method.score(Seen(*seen, None), dw, count).argmax(1) for seen in (whole, some))
    assert torch.equal(found, labels)
    looked_at = some[2] > 0
    torch.testing.assert_close(some[1], whole[1] * looked_at)
    if lam in (0.02, 0.2):
        assert looked_at.sum() < 190
    assert looked_at.all() or lam < 1


def test_two_models_that_are_almost_as_good_are_told_apart():
    """One wins by its loss and the other by its cosine, with a lambda so near the one where they
    are equal that a weight of the cosine that is wrong by a hundredth decides otherwise."""
    model, draw = mlp((1, 4, 4), 3, (40,)), torch.Generator().manual_seed(0)
    rows = torch.stack([model.init(0)] * 2)
    rows[1] += 0.003 * torch.randn(model.size, generator=draw)
    x, y, mask = batches(200, 50, 4, -1.0, 0.5)
    x, mask, tried = x.float(), torch.ones_like(mask), 0
    ends = chosen_step(model, rows, torch.arange(200) % 2, x, y, mask, lr=1.0)
    dw = (ends - rows) * torch.tensor([[1.0], [-1.0]])  # one model on its way, one on its way back
    dw += 0.03 * dw.norm() * torch.randn(dw.shape, generator=draw) / model.size**0.5
    whole = Joint(LocalSGD(model, lr=0.1), k=2).look(rows, dw, (x, y, mask))
    cosine = -whole.dot / whole.norm / dw.norm(dim=1)
    equal = whole.loss.diff()[:, 0] / cosine.diff()[:, 0]  # weight at which both are as good
    for i in ((equal > 0.001) & (equal < 0.004)).nonzero()[:, 0].tolist():
        batch, count = (x[i : i + 1], y[i : i + 1], mask[i : i + 1]), torch.tensor([[50]])
        for share in (0.99, 0.998, 1.002, 1.005, 1.01):
            weight = share * 50 * float(equal[i])
            method = Joint(LocalSGD(model, lr=0.1), k=2, lam=weight / (1 + weight), loss="sum")
            seen = method.look(rows, dw, batch), fast.choose(method, rows, dw, batch)
            best = [int(method.score(each, dw, count).argmax()) for each in seen]
            assert best[0] == best[1], f"client {i}, weight {weight}"
            tried += 1
    assert tried > 10
