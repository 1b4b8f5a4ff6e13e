"""Joint's gradients per client and DP-SGD's per sample, against autograd."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedclust.algorithms import Joint
from fedclust.models import Model, cnn, mlp
from fedclust.privacy import DPSGD
from fedclust.training import LocalSGD


def tied() -> nn.Module:
    layer = nn.Linear(9, 9)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer, nn.Linear(9, 4))


def bare() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1, bias=False),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(27, 4, bias=False),
    )


MODELS = {
    "mlp": mlp((1, 6, 6), 4, (7, 5)),
    "cnn": cnn((1, 6, 6), 4, (2, 3), 3, "last", (5,)),
    "without biases": Model(bare, (1, 6, 6), 4),
}


def batches(model):
    """Five clients with 1 to 7 samples in a batch, three models, three directions; in double
    precision."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.stack([model.init(0, k) for k in range(3)]).double()
    directions = torch.randn(rows.shape, generator=draw, dtype=torch.float64)
    x = torch.randn(5, 7, *model.shape, generator=draw, dtype=torch.float64)
    y = torch.randint(4, (5, 7), generator=draw)
    mask = torch.arange(7) < torch.tensor([7, 1, 4, 7, 2])[:, None]
    return model, rows, directions, x, y, mask


def gradient(model, row, x, y, mask):
    """Loss and gradient of one client under one model, the plain way."""
    net = model.module(row)
    loss = cross_entropy(net(x[mask]), y[mask])
    loss.backward()
    return loss.detach(), torch.cat([w.grad.flatten() for w in net.parameters()])


def losses(model, rows, x, y, mask):
    """(N, K)"""
    each = [[gradient(model, row, *one)[0] for row in rows] for one in zip(x, y, mask, strict=True)]
    return torch.tensor(each, dtype=rows.dtype)


def look(model, rows, directions, x, y, mask):
    """What Joint's devices see of the models on PyTorch alone."""
    return Joint(LocalSGD(model, lr=0.1), k=len(rows)).look(rows, directions, (x, y, mask))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_clients_gradients_are_autograds(model):
    _, rows, directions, x, y, mask = batches(model)
    seen = look(model, rows, directions, x, y, mask)
    for k, (row, direction) in enumerate(zip(rows, directions, strict=True)):
        for i in range(5):
            expected, g = gradient(model, row, x[i], y[i], mask[i])
            assert seen.loss[i, k] == pytest.approx(float(expected), abs=1e-12)
            assert seen.dot[i, k] == pytest.approx(float(g @ direction), abs=1e-12)
            assert seen.norm[i, k] == pytest.approx(float(g.norm()), abs=1e-12)


def test_without_a_direction_only_the_losses():
    model, rows, _, *batch = batches(MODELS["cnn"])
    seen = look(model, rows, None, *batch)
    torch.testing.assert_close(seen.loss, losses(model, rows, *batch))
    assert seen.dot.count_nonzero() == seen.norm.count_nonzero() == 0


def test_padding_is_never_seen():
    model, rows, directions, x, y, mask = batches(MODELS["mlp"])
    other = torch.where(mask[..., None, None, None], x, 100.0)
    seen = [look(model, rows, directions, images, y, mask)[:3] for images in (x, other)]
    for a, b in zip(*seen, strict=True):
        torch.testing.assert_close(a, b)


class Spare(nn.Module):
    """Has weights that nothing uses and weights that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare, self.frozen = nn.Linear(9, 4), nn.Linear(2, 2), nn.Linear(9, 9)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(self.frozen(x.flatten(1)))


def test_private_training_leaves_frozen_weights():
    model = Model(Spare, (1, 3, 3), 4)
    x, y = torch.randn(7, 1, 3, 3), torch.arange(7) % 4
    net = model.module(model.init(0))
    DPSGD(model, lr=0.1, batch=7, noise_multiplier=1.0).gradient(net, x, y, 7)
    assert net.frozen.weight.grad is None and not net.spare.weight.grad.any()
    assert net.used.weight.grad.any()


@pytest.mark.parametrize("clip", [0.3, 1e9])
@pytest.mark.parametrize("model", [*MODELS.values(), Model(tied, (1, 3, 3), 4)])
def test_private_gradients_are_autograds_one_by_one(model, clip):
    _, rows, _, x, y, _ = batches(model)
    trainer = DPSGD(model, lr=0.1, batch=7, noise_multiplier=1.0, clip=clip)
    net = model.module(rows[0])
    trainer.gradient(net, x[0], y[0], 7)
    expected = torch.zeros_like(rows[0])
    for i in range(7):
        _, own = gradient(model, rows[0], x[0], y[0], torch.arange(7) == i)
        expected += own * min(1, clip / float(own.norm())) / 7
    torch.testing.assert_close(torch.cat([w.grad.flatten() for w in net.parameters()]), expected)
