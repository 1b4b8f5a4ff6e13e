import pytest
import torch
from torch.nn import functional as F

from fedclust.datasets import glyphs


@pytest.mark.parametrize(
    ("classes", "color", "shape"),
    [(10, False, (1, 28, 28)), (47, False, (1, 28, 28)), (62, True, (3, 32, 32))],
)
def test_shapes_and_balance(classes, color, shape):
    x, y = glyphs.draw(3 * classes, classes, color)
    assert x.shape == (3 * classes, *shape) and x.dtype == torch.uint8 and y.dtype == torch.int64
    assert y.bincount(minlength=classes).tolist() == [3] * classes


def test_the_seed_decides_and_nothing_else():
    before = torch.get_rng_state()
    x, y = glyphs.draw(50, seed=3)
    torch.rand(7)
    again, same = glyphs.draw(50, seed=3)
    assert x.equal(again) and y.equal(same)
    for other, _ in (glyphs.draw(50, seed=4), glyphs.draw(50, seed=3, half="test")):
        assert not x.equal(other)
    torch.set_rng_state(before)
    glyphs.draw(5)
    assert torch.get_rng_state().equal(before)


def test_every_face_has_every_character():
    fine = glyphs.drawings(glyphs.CHARACTERS[62])
    ink = fine.float().mean((3, 4))  # (character, face, weight)
    assert ink.min() > 1 and (ink.diff(dim=2) > 0).all()  # thickened means more ink
    for face in range(fine.shape[1]):  # a font without letters would draw one box for all of them
        assert len(fine[:, face, 0].flatten(1).unique(dim=0)) == 62
    edges = torch.cat([fine[..., 0, :], fine[..., -1, :], fine[..., 0], fine[..., -1]], -1)
    assert edges.max() == 0  # nothing is cut off


def test_a_chunk_more_is_only_more():
    x, y = glyphs.draw(glyphs.CHUNK + 3)
    assert len(x) == len(y) == glyphs.CHUNK + 3
    assert x[-3:].flatten(1).float().std(1).min() > 10  # drawn, not left over


@pytest.mark.parametrize("color", [False, True])
def test_learnable_but_not_trivial(color):
    x, y, x_test, y_test = (
        v.flatten(1).float() / 255 - 0.3 if v.ndim > 1 else v
        for half, n in (("train", 3000), ("test", 500))
        for v in glyphs.draw(n, color=color, half=half)
    )
    draws = torch.Generator().manual_seed(0)
    w, v = (torch.randn(a, b, generator=draws) / a**0.5 for a, b in ((x.shape[1], 128), (128, 10)))
    w.requires_grad_(), v.requires_grad_()
    optimizer = torch.optim.SGD([w, v], lr=0.02, momentum=0.9)
    for _ in range(10):
        for batch in torch.randperm(len(y), generator=draws).split(32):
            optimizer.zero_grad()
            F.cross_entropy((x[batch] @ w).relu() @ v, y[batch]).backward()
            optimizer.step()
    learned = (((x_test @ w).relu() @ v).argmax(1) == y_test).float().mean()
    means = torch.stack([x[y == k].mean(0) for k in range(10)])
    nearest = (torch.cdist(x_test, means).argmin(1) == y_test).float().mean()
    assert learned > (0.5 if color else 0.8)
    assert nearest < learned - 0.1


def test_errors_name_the_value():
    with pytest.raises(ValueError, match="classes=11: must be 10, 47 or 62"):
        glyphs.draw(5, classes=11)
    with pytest.raises(ValueError, match="n=-1"):
        glyphs.draw(-1)
