"""Losses and gradients of all (client, model) pairs, against one autograd pass per pair."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedclust import decision
from fedclust.decision import chosen_step, decisions, losses, taps
from fedclust.models import Model, cnn, mlp, vgg19


def shared() -> nn.Module:
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
    "cnn, by PyTorch": replace(cnn((1, 6, 6), 4, (2, 3), 3, "last", (5,)), dense=None, blocks=()),
    "without biases": Model(bare, (1, 6, 6), 4),
}


@pytest.fixture(params=MODELS)
def case(request):
    return case_of(request.param)


def case_of(name):
    """Five clients with 1 to 7 samples in a batch, three models, three directions; in double precision."""
    model, draw = MODELS[name], torch.Generator().manual_seed(0)
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


@pytest.mark.parametrize("chunk", [512, 1])
def test_decisions_equal_one_pass_per_pair(case, chunk, monkeypatch):
    monkeypatch.setattr(decision, "CHUNK", chunk)
    model, rows, directions, x, y, mask = case
    loss, dot, norm = decisions(model, rows, directions, x, y, mask)
    assert loss.shape == dot.shape == norm.shape == (5, 3)
    for i in range(5):
        for k in range(3):
            expected, g = gradient(model, rows[k], x[i], y[i], mask[i])
            assert loss[i, k] == pytest.approx(float(expected), abs=1e-12)
            assert dot[i, k] == pytest.approx(float(g @ directions[k]), abs=1e-12)
            assert norm[i, k] == pytest.approx(float(g.norm()), abs=1e-12)


def test_without_directions_only_the_losses(case):
    model, rows, directions, x, y, mask = case
    loss, dot, norm = decisions(model, rows, None, x, y, mask)
    torch.testing.assert_close(loss, losses(model, rows, x, y, mask))
    torch.testing.assert_close(loss, decisions(model, rows, directions, x, y, mask)[0])
    assert dot.count_nonzero() == norm.count_nonzero() == 0


def test_chosen_step_is_the_mean_of_the_clients_own_steps(case):
    model, rows, _, x, y, mask = case
    choice = torch.tensor([2, 0, 2, 2, 0])
    out = chosen_step(model, rows, choice, x, y, mask, lr=0.3)
    for k in (0, 2):
        members = (choice == k).nonzero()[:, 0].tolist()
        own = [rows[k] - 0.3 * gradient(model, rows[k], x[i], y[i], mask[i])[1] for i in members]
        torch.testing.assert_close(out[k], torch.stack(own).mean(0), rtol=0, atol=1e-12)
    assert torch.equal(out[1], rows[1])  # nobody chose it


def test_padding_is_never_seen(case):
    model, rows, directions, x, y, mask = case
    other = torch.where(mask[..., None, None, None], x, 100.0)
    for a, b in zip(
        decisions(model, rows, directions, x, y, mask), decisions(model, rows, directions, other, y, mask), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_only_models_within_the_margin_are_looked_at(case):
    model, rows, directions, x, y, mask = case
    everything = decisions(model, rows, directions, x, y, mask)
    excess = everything[0] - everything[0].amin(1, keepdim=True)
    margin = excess.sort(1).values[:, 1:2] * torch.tensor([1.01, 0.99, 1.01, 0.99, 1.01])[:, None]
    loss, dot, norm = decisions(model, rows, directions, x, y, mask, margin)
    near = excess <= margin
    assert near.sum(1).tolist() == [2, 1, 2, 1, 2]
    near[[1, 3]] = False  # one model left: nothing to compare it with
    torch.testing.assert_close(loss, everything[0])
    torch.testing.assert_close(dot, everything[1] * near)
    torch.testing.assert_close(norm, everything[2] * near)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("margin", [0.05, 0.5, 5.0, float("inf")])
def test_what_cannot_win_any_more_need_not_be_looked_at(case, sign, margin):
    """With directions along the first model's gradients its cosine is 1, so that models with more loss are out."""
    model, rows, directions, x, y, mask = case
    directions[0] = sign * gradient(model, rows[0], x[0], y[0], mask[0])[1]
    lengths = directions.norm(dim=1)

    def promise(loss, dot, norm):
        return min(margin, 1e6) / 2 * sign * dot / (norm * lengths).clamp_min(1e-30) - loss

    full = promise(*decisions(model, rows, directions, x, y, mask))
    found = decisions(model, rows, directions, x, y, mask, margin, sign)
    assert promise(*found).argmax(1).equal(full.argmax(1))


def test_a_model_that_is_sure_of_its_client_saves_the_others_gradients():
    model, rows, directions, x, y, mask = case_of("cnn")
    loss = losses(model, rows, x, y, mask)
    best = int(loss[0].argmin())
    directions[best] = gradient(model, rows[best], x[0], y[0], mask[0])[1]
    _, _, norm = decisions(model, rows, directions, x, y, mask, 5.0, 1)
    assert norm[0].count_nonzero() == 1 and norm.count_nonzero() > 5


def test_same_choices_in_single_precision_at_full_size():
    model, draw = mlp((1, 28, 28), 8, (512, 128)), torch.Generator().manual_seed(0)
    rows = torch.stack([model.init(0, k) for k in range(4)])
    directions = 0.01 * torch.randn(rows.shape, generator=draw)
    x, y = torch.randn(6, 64, 1, 28, 28, generator=draw), torch.randint(8, (6, 64), generator=draw)
    mask = torch.ones(6, 64, dtype=torch.bool)
    loss, dot, norm = decisions(model, rows, directions, x, y, mask)
    exact = decisions(model, rows.double(), directions.double(), x.double(), y, mask)
    for fast, slow in zip((loss, dot, norm), exact, strict=True):
        torch.testing.assert_close(fast.double(), slow, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "named"), [(vgg19(width=1 / 32), "BatchNorm2d"), (Model(shared, (1, 3, 3), 4), "used exactly once")]
)
def test_layers_without_known_gradients_are_named(model, named):
    x = torch.randn(2, *model.shape)
    with pytest.raises(ValueError, match=named):
        taps(model.module(model.init(0)), x, torch.tensor([0, 1]), torch.ones(2))
