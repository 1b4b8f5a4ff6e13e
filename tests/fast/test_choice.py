"""Losses and gradients of all (client, model) pairs, compiled, against one autograd pass per
pair."""

import pytest
import torch

from fedclust.fast import choice
from fedclust.models import cnn, mlp
from tests.test_gradients import batches, gradient, losses

MODELS = {
    "mlp": mlp((1, 6, 6), 4, (7, 5)),
    "cnn": cnn((1, 6, 6), 4, (2, 3), 3, "last", (5,)),
}


@pytest.fixture(params=MODELS)
def case(request):
    return batches(MODELS[request.param])


def decisions(model, rows, directions, *batch, margin=torch.inf, sign=0):
    """loss, dot and norm of every pair, (N, K) each."""
    look = choice.with_blocks if model.blocks else choice.of_perceptrons
    prepared = choice.plain(model, rows, batch)
    return look(model, rows, directions, prepared, torch.as_tensor(margin), sign)


def chosen_step(model, rows, labels, *batch, lr):
    step = choice.step_with_blocks if model.blocks else choice.step
    return step(model, rows, choice.plain(model, rows, batch), labels, lr)


def test_decisions_equal_one_pass_per_pair(case):
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
        decisions(model, rows, directions, x, y, mask),
        decisions(model, rows, directions, other, y, mask),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_only_models_within_the_margin_are_looked_at(case):
    model, rows, directions, x, y, mask = case
    everything = decisions(model, rows, directions, x, y, mask)
    excess = everything[0] - everything[0].amin(1, keepdim=True)
    margin = excess.sort(1).values[:, 1:2] * torch.tensor([1.01, 0.99, 1.01, 0.99, 1.01])[:, None]
    loss, dot, norm = decisions(model, rows, directions, x, y, mask, margin=margin)
    near = excess <= margin
    assert near.sum(1).tolist() == [2, 1, 2, 1, 2]
    near[[1, 3]] = False  # one model left: nothing to compare it with
    torch.testing.assert_close(loss, everything[0])
    torch.testing.assert_close(dot, everything[1] * near)
    torch.testing.assert_close(norm, everything[2] * near)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("margin", [0.05, 0.5, 5.0, float("inf")])
def test_what_cannot_win_any_more_need_not_be_looked_at(case, sign, margin):
    """With directions along the first model's gradients its cosine is 1, so that models with more
    loss are out."""
    model, rows, directions, x, y, mask = case
    directions[0] = sign * gradient(model, rows[0], x[0], y[0], mask[0])[1]
    lengths = directions.norm(dim=1)

    def promise(loss, dot, norm):
        return min(margin, 1e6) / 2 * sign * dot / (norm * lengths).clamp_min(1e-30) - loss

    full = promise(*decisions(model, rows, directions, x, y, mask))
    found = decisions(model, rows, directions, x, y, mask, margin=margin, sign=sign)
    assert promise(*found).argmax(1).equal(full.argmax(1))


def test_a_model_that_is_sure_of_its_client_saves_the_others_gradients():
    model, rows, directions, x, y, mask = batches(MODELS["cnn"])
    loss = losses(model, rows, x, y, mask)
    best = int(loss[0].argmin())
    directions[best] = gradient(model, rows[best], x[0], y[0], mask[0])[1]
    _, _, norm = decisions(model, rows, directions, x, y, mask, margin=5.0, sign=1)
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
