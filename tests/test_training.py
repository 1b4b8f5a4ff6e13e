"""Local training: by hand, against torch.optim, one backend against the other."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from fedclust.fast import matmul
from fedclust.federation import Federation
from fedclust.models import Model, cnn, mlp, vgg19
from fedclust.training import LocalSGD, crop_flip

MLP = mlp((1, 4, 4), 3, (6, 5))
CNN = replace(cnn((1, 8, 8), 3, (2, 3), 3, "last", (5,)), dense=None, blocks=())  # by PyTorch alone
SIZES = (13, 1, 8, 30)


def clients(sizes=SIZES, shape=(1, 4, 4), classes=3, dtype=torch.float64):
    draw = torch.Generator().manual_seed(7)
    data = [
        (
            torch.randn(n, *shape, generator=draw, dtype=dtype),
            torch.randint(classes, (n,), generator=draw),
        )
        for n in sizes
    ]
    n = len(sizes)
    return Federation.stack(
        {"train": data, "test": data}, group=torch.zeros(n, dtype=torch.long), classes=classes
    )


def starts(model, n, dtype=torch.float64):
    return torch.stack([model.init(0, k) for k in range(n)]).to(dtype)


def plain(trainer, row, fed, i, seed=0, t=0):
    """Client i trained as one writes it down, with torch.optim and autograd."""
    net = trainer.model.module(row)
    received = [w.detach().clone() for w in net.parameters()]
    lr = trainer.lr * trainer.decay**t
    if trainer.optimizer == "adam":
        step = torch.optim.Adam(net.parameters(), lr, weight_decay=trainer.weight_decay)
    else:
        step = torch.optim.SGD(
            net.parameters(), lr, trainer.momentum, weight_decay=trainer.weight_decay
        )
    for batch in trainer.batches(fed, i, seed, t):
        batch = batch[batch >= 0]
        distance = sum(
            (w - w0).square().sum() for w, w0 in zip(net.parameters(), received, strict=True)
        )
        loss = cross_entropy(net(fed.x[i][batch]), fed.y[i][batch]) + trainer.prox / 2 * distance
        step.zero_grad()
        loss.backward()
        step.step()
    return trainer.model.row(net)


@pytest.mark.parametrize("backend", ["stacked", "loop"])
def test_one_step_by_hand(backend):
    """Zero weights on one sample: p = (1/2, 1/2), so dW = (p - onehot) x."""
    model = mlp((1, 1, 2), 2, ())
    x = torch.tensor([[[[3.0, -2.0]]]])
    half = {"train": [(x, torch.tensor([1]))], "test": [(x, torch.tensor([1]))]}
    fed = Federation.stack(half, group=torch.zeros(1, dtype=torch.long), classes=2)
    out = LocalSGD(model, lr=0.1, backend=backend)(torch.zeros(1, 6), fed, torch.tensor([0]), 0, 0)
    expected = [-0.1 * 0.5 * 3, 0.1 * 0.5 * 2, 0.1 * 0.5 * 3, -0.1 * 0.5 * 2, -0.05, 0.05]
    torch.testing.assert_close(out[0], torch.tensor(expected))


OPTIONS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "decayed weights": {"weight_decay": 0.05},
    "prox": {"prox": 0.3},
    "all": {"momentum": 0.5, "weight_decay": 0.05, "prox": 0.3, "decay": 0.9},
    "steps": {"steps": 7},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", ["stacked", "loop", "cnn"])
def test_backends_equal_a_plain_loop(options, kind):
    model, shape = (CNN, (1, 8, 8)) if kind == "cnn" else (MLP, (1, 4, 4))
    fed, chosen = clients(shape=shape), torch.tensor([3, 1, 0])
    trainer = LocalSGD(
        model, lr=0.1, epochs=2, batch=5, backend="loop" if kind == "cnn" else kind, **options
    )
    theta = starts(model, 3)
    out = trainer(theta, fed, chosen, 0, 2)
    for row, start, i in zip(out, theta, chosen.tolist(), strict=True):
        torch.testing.assert_close(row, plain(trainer, start, fed, i, t=2), rtol=0, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"prox": 0.5}])
def test_adam_equals_torchs(options):
    fed, trainer = clients(), LocalSGD(MLP, lr=0.01, batch=5, epochs=2, optimizer="adam", **options)
    theta = starts(MLP, 4)
    out = trainer(theta, fed, torch.arange(4), 0, 0)
    for i in range(4):
        torch.testing.assert_close(out[i], plain(trainer, theta[i], fed, i), rtol=0, atol=1e-9)


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    batch=st.integers(1, 8),
    epochs=st.integers(1, 3),
    momentum=st.sampled_from([0, 0.9]),
    prox=st.sampled_from([0, 0.1]),
)
@settings(deadline=None, max_examples=25)
def test_stacked_is_loop(sizes, batch, epochs, momentum, prox):
    fed, n = clients(sizes), len(sizes)
    stacked = LocalSGD(
        MLP, lr=0.1, epochs=epochs, batch=batch, momentum=momentum, prox=prox, backend="stacked"
    )
    a = stacked(starts(MLP, n), fed, torch.arange(n), 0, 0)
    b = replace(stacked, backend="loop")(starts(MLP, n), fed, torch.arange(n), 0, 0)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_stacked_is_loop_in_single_precision():
    model = mlp((1, 28, 28), 10, (200, 200))  # large enough for the other kernel of `fast_matmul`
    fed = clients((40,) * 10, (1, 28, 28), 10, torch.float32)
    trainer = LocalSGD(model, lr=0.05, batch=10, steps=4)
    theta = starts(model, 10, torch.float32)
    a, b = (
        replace(trainer, backend=backend)(theta, fed, torch.arange(10), 0, 0)
        for backend in ("stacked", "loop")
    )
    assert (a - b).abs().max() < 1e-5
    assert (a - theta).abs().max() > 1e-3


@pytest.mark.parametrize("backend", ["stacked", "loop"])
def test_fellow_clients_do_not_matter(backend):
    fed, trainer = (
        clients(),
        LocalSGD(MLP, lr=0.1, batch=4, epochs=2, momentum=0.5, backend=backend),
    )
    theta = starts(MLP, 4)
    together = trainer(theta, fed, torch.arange(4), 0, 0)
    for i in range(4):
        torch.testing.assert_close(
            trainer(theta[[i]], fed, torch.tensor([i]), 0, 0)[0], together[i], rtol=0, atol=1e-12
        )
    turned = trainer(theta.flip(0), fed, torch.arange(3, -1, -1), 0, 0)
    torch.testing.assert_close(turned.flip(0), together, rtol=0, atol=1e-12)
    moved = trainer(
        theta[[3, 0]], fed.take([3, 0]), torch.tensor([0, 1]), 0, 0
    )  # other positions and padding, same names
    torch.testing.assert_close(moved, together[[3, 0]], rtol=0, atol=1e-12)


def test_threads_change_nothing():
    fed, trainer = clients(), LocalSGD(MLP, lr=0.1, batch=4, backend="stacked")
    outs, threads = [], torch.get_num_threads()
    for n in (1, 3):
        torch.set_num_threads(n)
        outs.append(trainer(starts(MLP, 4), fed, torch.arange(4), 0, 0))
    torch.set_num_threads(threads)
    assert torch.equal(*outs)


def test_padding_is_never_seen():
    fed = clients()
    poisoned = replace(
        fed, x=torch.where(fed.mask[..., None, None, None], fed.x, torch.nan), y=fed.y.clone()
    )
    for backend in ("stacked", "loop"):
        trainer = LocalSGD(MLP, lr=0.1, batch=5, backend=backend)
        a, b = (trainer(starts(MLP, 4), f, torch.arange(4), 0, 0) for f in (fed, poisoned))
        assert torch.equal(a, b)


@given(n=st.integers(1, 40), batch=st.integers(1, 50), epochs=st.integers(1, 3))
@settings(deadline=None)
def test_an_epoch_sees_each_sample_once(n, batch, epochs):
    fed = clients((n, 2), shape=(1, 1, 1))
    plan = LocalSGD(MLP, lr=1, batch=batch, epochs=epochs).batches(fed, 0, 0, 0)
    assert plan.shape == (epochs * -(-n // min(batch, n)), min(batch, n))
    seen = plan[plan >= 0].view(epochs, n)
    assert torch.equal(seen.sort(1).values, torch.arange(n).expand(epochs, n))


def test_batch_order_does_not_depend_on_the_number_of_epochs():
    fed, trainer = clients(), LocalSGD(MLP, lr=1, batch=4)
    one, three = (replace(trainer, epochs=e).batches(fed, 0, 0, 0) for e in (1, 3))
    assert torch.equal(three[: len(one)], one)
    assert torch.equal(replace(trainer, steps=6).batches(fed, 0, 0, 0), three[:6])
    assert not torch.equal(trainer.batches(fed, 0, 0, 1), one)  # another round
    assert not torch.equal(trainer.batches(fed, 0, 1, 0), one)  # another seed


def test_samples_may_lie_anywhere_under_the_mask():
    fed = clients((6, 6))
    fed = replace(fed, mask=torch.tensor([[False, True, True, False, True, True], [True] * 6]))
    plan = LocalSGD(MLP, lr=1, batch=3).batches(fed, 0, 0, 0)
    assert sorted(plan[plan >= 0].tolist()) == [1, 2, 4, 5]


def test_learning_rate_decays_by_round():
    fed, trainer = (
        clients((6,)),
        LocalSGD(MLP, lr=0.2, batch=6, decay=0.5),
    )  # one batch: the order does not matter
    theta = starts(MLP, 1)
    steps = [trainer(theta, fed, torch.tensor([0]), 0, t) - theta for t in (0, 1, 3)]
    torch.testing.assert_close(steps[0], 2 * steps[1])
    torch.testing.assert_close(steps[0], 8 * steps[2])


def test_prox_holds_a_client_back():
    fed, theta = clients((30,)), starts(MLP, 1)
    moved = [
        (
            LocalSGD(MLP, lr=0.1, batch=5, epochs=5, prox=mu)(theta, fed, torch.tensor([0]), 0, 0)
            - theta
        ).norm()
        for mu in (0, 0.5, 5)
    ]
    assert moved[0] > moved[1] > moved[2] > 0


def test_batch_norm_statistics_are_trained_with_the_row():
    model = vgg19(width=1 / 32)
    fed = clients((6, 5), (3, 32, 32), 10, torch.float32)
    out = LocalSGD(model, lr=0.01, batch=4)(
        starts(model, 2, torch.float32), fed, torch.tensor([0, 1]), 0, 0
    )
    buffers = out[:, model.parameters :]
    assert not torch.equal(buffers[0], buffers[1])
    net = model.module(model.init(0)).train()
    with torch.no_grad():
        net(fed.x[0][LocalSGD(model, lr=0.01, batch=6).batches(fed, 0, 0, 0)[0]])
    one = LocalSGD(model, lr=1e-30, batch=6)(model.init(0)[None], fed, torch.tensor([0]), 0, 0)[0]
    torch.testing.assert_close(one, model.row(net))


def test_a_module_that_views_its_input_and_leaves_a_weight_unused():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(16, 3), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x.view(len(x), -1))

    model, fed = Model(Odd, (1, 4, 4), 3), clients((5,))
    theta = starts(model, 1)
    out = LocalSGD(model, lr=0.1, prox=0.1)(theta, fed, torch.tensor([0]), 0, 0)
    assert not torch.equal(out[0, :51], theta[0, :51])
    assert torch.equal(out[0, 51:], theta[0, 51:])


def test_crops_and_flips():
    x = torch.arange(1.0, 2 * 3 * 6 * 6 + 1).view(2, 3, 6, 6)
    padded = nn.functional.pad(x, (4, 4, 4, 4))
    seen = set()
    for seed in range(200):
        out = crop_flip(x, torch.Generator().manual_seed(seed))
        for image, source in zip(out, padded, strict=True):
            found = [
                (top, left, flipped)
                for top in range(9)
                for left in range(9)
                for flipped in (False, True)
                if torch.equal(
                    source[:, top : top + 6, left : left + 6], image.flip(-1) if flipped else image
                )
            ]
            assert found
            seen.update(found)
    assert {top for top, *_ in seen} == {left for _, left, _ in seen} == set(range(9))
    assert {flipped for *_, flipped in seen} == {False, True}


def test_augmentation_is_the_clients_own():
    fed = clients((12, 12), (1, 8, 8))
    trainer = LocalSGD(CNN, lr=0.1, batch=4, augment="crop_flip")
    theta = starts(CNN, 2)
    both = trainer(theta, fed, torch.arange(2), 0, 0)
    assert torch.equal(trainer(theta[[1]], fed, torch.tensor([1]), 0, 0)[0], both[1])
    assert not torch.equal(replace(trainer, augment=None)(theta, fed, torch.arange(2), 0, 0), both)


def test_autocast_is_close():
    model = cnn((3, 16, 16), 5, (8,), 3, hidden=(16,))
    fed = clients((20,), (3, 16, 16), 5, torch.float32)
    theta = starts(model, 1, torch.float32)
    full, half = (
        LocalSGD(model, lr=0.1, batch=5, autocast=a)(theta, fed, torch.tensor([0]), 0, 0)
        for a in (False, True)
    )
    assert half.dtype == torch.float32
    assert 0 < (full - half).norm() < 0.2 * (full - theta).norm()


def test_fast_products_are_single_precision_and_the_setting_is_restored():
    like, before = torch.zeros(1), matmul.SETTING.fp32_precision
    a, b = torch.randn(6, 64, 784), torch.randn(6, 784, 256)
    with pytest.raises(KeyError), matmul.fast_matmul(like, 10**9):
        assert matmul.SETTING.fp32_precision == ("bf16" if matmul.is_single_precision() else before)
        assert ((a @ b) - (a.double() @ b.double())).norm() < 1e-5 * (
            a.double() @ b.double()
        ).norm()
        raise KeyError
    assert matmul.SETTING.fp32_precision == before
    for tensor, products in ((like, 10), (like.double(), 10**9)):
        with matmul.fast_matmul(tensor, products):
            assert matmul.SETTING.fp32_precision == before


def test_a_kernel_that_rounds_is_not_used(monkeypatch):
    monkeypatch.setattr(matmul, "is_single_precision", lambda: False)
    before = matmul.SETTING.fp32_precision
    with matmul.fast_matmul(torch.zeros(1), 10**9):
        assert matmul.SETTING.fp32_precision == before


@pytest.mark.parametrize("backend", ["stacked", "loop"])
def test_divergence_shows(backend):
    trainer = LocalSGD(MLP, lr=1e200, epochs=3, batch=4, backend=backend)
    fed, theta = clients(), starts(MLP, 4)
    with pytest.raises(FloatingPointError, match=r"clients \[.+\] are not finite"):
        trainer(theta, fed, torch.arange(4), 0, 0)


@pytest.mark.parametrize("model", [MLP, CNN], ids=["stacked", "loop"])
def test_nothing_else_changes(model):
    fed = clients(shape=model.shape)
    theta, state, images = starts(model, 4), torch.random.get_rng_state(), fed.x.clone()
    before = theta.clone()
    trainer = LocalSGD(model, lr=0.1, batch=4, momentum=0.9)
    first, second = (trainer(theta, fed, torch.arange(4), 0, 0) for _ in range(2))
    assert torch.equal(first, second)  # momentum starts fresh
    assert torch.equal(theta, before)
    assert torch.equal(fed.x, images)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert trainer(theta[:0], fed, torch.arange(0), 0, 0).shape == (0, model.size)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"lr": 0}, "lr=0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"batch": 0}, "batch=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"lr": True}, "lr=True"),
        ({"lr": "0.1"}, "lr='0.1'"),
        ({"lr": float("inf")}, "lr=inf"),
        ({"batch": 2.5}, "batch=2.5"),
        ({"epochs": True}, "epochs=True"),
        ({"momentum": 1}, "momentum=1"),
        ({"prox": float("nan")}, "prox=nan"),
        ({"weight_decay": None}, "weight_decay=None"),
        ({"autocast": 1}, "autocast=1"),
        ({"optimizer": ["sgd"]}, "optimizer=['sgd']"),
        ({"steps": 0}, "steps=0"),
        ({"momentum": -0.1}, "momentum=-0.1"),
        ({"prox": -1}, "prox=-1"),
        ({"decay": 1.5}, "decay=1.5"),
        ({"optimizer": "lion"}, "'lion'"),
        ({"backend": "fast"}, "'fast'"),
        ({"augment": "mixup"}, "'mixup'"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum=0.9"),
        ({"backend": "stacked", "model": CNN}, "no perceptron"),
        ({"backend": "stacked", "optimizer": "adam"}, "with optimizer='adam'"),
        ({"backend": "stacked", "augment": "crop_flip"}, "with augment='crop_flip'"),
    ],
)
def test_errors_name_the_value(wrong, named):
    with pytest.raises(ValueError) as error:
        LocalSGD(**{"model": MLP, "lr": 0.1, **wrong})
    assert named in str(error.value)


def test_wrong_rows_and_empty_clients_are_named():
    fed, trainer = clients(), LocalSGD(MLP, lr=0.1)
    with pytest.raises(ValueError, match=r"theta is \(4, 10\)"):
        trainer(torch.zeros(4, 10), fed, torch.arange(4), 0, 0)
    with pytest.raises(ValueError, match=r"clients \[2\] have no training samples"):
        bare = replace(fed, mask=fed.mask & (torch.arange(4) != 2)[:, None])
        trainer(starts(MLP, 4), bare, torch.arange(4), 0, 0)
