"""Privacy: against Opacus' own optimiser and accountant, and by hand."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.nn.functional import cross_entropy

from fedclust import algorithms
from fedclust.algorithms import OCFL, FedAvg, FedProx
from fedclust.experiments import build
from fedclust.federation import Federation
from fedclust.models import ChannelsLast, Model, cnn, mlp, vgg19
from fedclust.privacy import DPSGD, UpdateNoise
from fedclust.simulation import run
from fedclust.training import LocalSGD

MLP = mlp((1, 6, 6), 3, (7, 5))
CNN = cnn((1, 8, 8), 3, (2, 3), 3, "last", (5,))


def strided() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1, dilation=2, bias=False), nn.ReLU(), nn.Flatten(),
        nn.Linear(27, 3, bias=False),
    )  # fmt: skip


STRIDED = Model(strided, (1, 8, 8), 3)


def clients(sizes, shape, dtype=torch.float64):
    draw = torch.Generator().manual_seed(3)
    images = [torch.randn(n, *shape, generator=draw, dtype=dtype) for n in sizes]
    data = [(x, torch.randint(3, (len(x),), generator=draw)) for x in images]
    return Federation.stack(
        {"train": data, "test": data}, group=torch.zeros(len(sizes), dtype=torch.long), classes=3
    )


def opacus_step(trainer, row, fed, i):
    """One step on all of client i's samples by Opacus, noise off."""
    layers = [layer for layer in trainer.model.module(row) if not isinstance(layer, ChannelsLast)]
    net = GradSampleModule(
        nn.Sequential(*layers).to(memory_format=torch.contiguous_format)
    )  # all that Opacus reads right
    n = int(fed.sizes[i])
    step = DPOptimizer(
        torch.optim.SGD(net.parameters(), lr=trainer.lr, momentum=trainer.momentum),
        noise_multiplier=0.0, max_grad_norm=trainer.clip, expected_batch_size=n,
    )  # fmt: skip
    cross_entropy(net(fed.x[i, :n].clone().requires_grad_()), fed.y[i, :n]).backward()
    step.step()
    return trainer.model.row(net._module)


@pytest.mark.parametrize("clip", [0.1, 0.8, 100.0])
@pytest.mark.parametrize(
    ("model", "backend"),
    [(MLP, "stacked"), (MLP, "loop"), (CNN, "auto"), (CNN, "loop"), (STRIDED, "auto")],
    ids=["stacked", "loop", "cnn", "cnn loop", "strided"],
)
def test_equals_opacus_with_the_noise_off(model, backend, clip):
    fed = clients((9, 4), model.shape)
    theta = torch.stack([model.init(0, k) for k in range(2)]).double()
    trainer = DPSGD(
        model, lr=0.5, batch=9, backend=backend, noise_multiplier=0.0, clip=clip
    )  # everyone is drawn
    out = trainer(theta, fed, torch.arange(2), 0, 0)
    for i in range(2):
        torch.testing.assert_close(
            out[i], opacus_step(trainer, theta[i], fed, i), rtol=0, atol=1e-6
        )
    assert (out - theta).norm(dim=1).max() <= 0.5 * clip * (1 + 1e-9)  # lr * clip bounds a step


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "weight_decay": 0.01, "prox": 0.1}])
def test_backends_agree_on_poisson_batches_with_noise(options):
    fed, theta = (
        clients((30, 5, 17), MLP.shape),
        torch.stack([MLP.init(0, k) for k in range(3)]).double(),
    )
    trainer = DPSGD(MLP, lr=0.1, batch=4, epochs=2, noise_multiplier=0.7, clip=0.5, **options)
    a, b = (
        replace(trainer, backend=backend)(theta, fed, torch.arange(3), 0, 0)
        for backend in ("stacked", "loop")
    )
    torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    alone = trainer(theta[[1]], fed, torch.tensor([1]), 0, 0)
    torch.testing.assert_close(alone[0], a[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "model", [mlp((1, 6, 6), 3, (300,)), cnn((1, 8, 8), 3, (4,), hidden=(300,))], ids=["mlp", "cnn"]
)
def test_size_of_the_noise(model):
    """One step on all samples: what noise adds is N(0, (lr * multiplier * clip / n)^2) in every
    coordinate.
    """
    fed, theta = clients((8,), model.shape), model.init(0)[None].double()
    trainer = DPSGD(model, lr=0.5, batch=8, noise_multiplier=1.5, clip=2.0)
    who = torch.tensor([0])
    added = trainer(theta, fed, who, 0, 0) - replace(trainer, noise_multiplier=0.0)(
        theta, fed, who, 0, 0
    )
    expected = 0.5 * 1.5 * 2.0 / 8
    assert added.std() == pytest.approx(expected, rel=0.03)
    assert abs(added.mean()) < 4 * expected / model.size**0.5
    again = trainer(theta, fed, who, 0, 1) - replace(trainer, noise_multiplier=0.0)(
        theta, fed, who, 0, 1
    )
    assert (
        abs(torch.corrcoef(torch.cat([added, again]))[0, 1]) < 4 / model.size**0.5
    )  # other rounds, other noise


def test_an_empty_batch_is_noise_only():
    """One sample in 1,000 per step: most batches are empty, the row moves all the same, by noise
    over the rate.
    """
    fed, theta = clients((1000,), (1, 1, 1)), torch.zeros(1, 6, dtype=torch.float64)
    model = mlp((1, 1, 1), 3, ())
    trainer = DPSGD(model, lr=1.0, batch=1, steps=1, noise_multiplier=1.0, clip=1e-6)
    t = next(t for t in range(50) if (trainer.batches(fed, 0, 0, t) >= 0).sum() == 0)
    for backend in ("stacked", "loop"):
        quiet = replace(trainer, backend=backend, noise_multiplier=0.0)(
            theta, fed, torch.tensor([0]), 0, t
        )
        assert torch.equal(quiet, theta)
        loud = replace(trainer, backend=backend)(theta, fed, torch.tensor([0]), 0, t)
        assert 0 < loud.norm() < 1e-4


def test_poisson_batches():
    fed = clients((200,), (1, 1, 1))
    plan = DPSGD(MLP, lr=1, batch=20, epochs=100, noise_multiplier=1.0).batches(fed, 0, 0, 0)
    counts = (plan >= 0).sum(1).float()
    assert len(plan) == 1000
    assert counts.mean() == pytest.approx(
        20, abs=4 * (18 / 1000) ** 0.5
    )  # 200 draws with probability 1/10
    assert counts.var() == pytest.approx(18, rel=0.2)
    drawn = torch.bincount(plan[plan >= 0], minlength=200)
    assert all(
        len(set(real)) == len(real)
        for real in ([p for p in row if p >= 0] for row in plan.tolist())
    )
    assert 60 < drawn.min() <= drawn.max() < 145  # 100 each, give or take


def test_the_budget_is_spent_by_the_last_participation():
    fed = clients((60, 40, 40), (1, 1, 1))
    trainer = DPSGD(MLP, lr=1, batch=10, epochs=2, epsilon=8.0, participations=5)
    assert trainer.multiplier(40) > trainer.multiplier(60)  # fewer samples, more noise
    spent = trainer.spent(torch.tensor([5.0, 5, 2]), fed)["epsilon"]
    assert 7.9 < spent[0] <= 8
    assert 7.9 < spent[1] <= 8
    assert 0 < spent[2] < 6
    accountant = RDPAccountant()
    for _ in range(2 * 4 * 2):  # two calls of two epochs of four steps
        accountant.step(noise_multiplier=trainer.multiplier(40), sample_rate=0.25)
    assert spent[2] == pytest.approx(accountant.get_epsilon(1e-5))
    assert trainer.spent(torch.tensor([0, 0, 9]), fed)["epsilon"][:2].tolist() == [0, 0]


def test_without_noise_nothing_is_promised():
    fed = clients((6,), (1, 1, 1))
    for trainer in (DPSGD(MLP, lr=1, epsilon=math.inf), DPSGD(MLP, lr=1, noise_multiplier=0.0)):
        assert trainer.multiplier(6) == 0
        assert trainer.spent(torch.tensor([1]), fed)["epsilon"].tolist() == [math.inf]
    spent = UpdateNoise(LocalSGD(MLP, lr=1)).spent(torch.tensor([1]), fed)
    assert {float(epsilon) for epsilon in spent.values()} == {math.inf}


# ---- clipped and noised updates


@dataclass(frozen=True)
class Shift:
    """A trainer that adds a given update."""

    update: torch.Tensor
    model: Model = MLP

    def __call__(self, theta, fed, clients, seed, t):
        return theta + self.update


def test_updates_are_clipped():
    fed, start = clients((5, 5, 5), (1, 1, 1)), torch.randn(3, 4, dtype=torch.float64)
    update = torch.tensor([[3.0, 0, 0, 4], [0.3, 0, 0, 0.4], [0, 0, 0, 0]], dtype=torch.float64)
    sent = UpdateNoise(Shift(update), clip=2.0)(start, fed, torch.arange(3), 0, 0) - start
    expected = torch.tensor([[1.2, 0, 0, 1.6], [0.3, 0, 0, 0.4], [0, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(sent, expected)


def test_noise_of_updates_by_hand():
    """sigma = c * 2C / (m * epsilon): c = sqrt(2 ln(1.25e5)) = 4.8448, C = 3, m = 20 and 80,
    epsilon = 2.
    """
    fed, width = clients((20, 80), (1, 1, 1)), 40_000
    noise = UpdateNoise(Shift(torch.zeros(2, width)), epsilon=2.0, clip=3.0)
    sent = noise(torch.zeros(2, width), fed, torch.tensor([0, 1]), 0, 0)
    assert sent[0].std() == pytest.approx(4.8448 * 6 / 40, rel=0.02)
    assert sent[1].std() == pytest.approx(4.8448 * 6 / 160, rel=0.02)
    assert torch.equal(noise(torch.zeros(2, width), fed, torch.tensor([0, 1]), 0, 0), sent)
    assert torch.equal(
        noise(torch.zeros(2, width), fed, torch.tensor([1, 0]), 0, 0), sent.flip(0)
    )  # the client's own
    other = noise(torch.zeros(2, width), fed, torch.tensor([0, 1]), 0, 1)
    assert abs(torch.corrcoef(torch.stack([sent[0], sent[1], other[0]])).triu(1)).max() < 0.03


def test_rounds_of_noised_updates_compose():
    """`epsilon` is for the sensitivity 2C; the formula's 2C/m, for m = 20 samples, has a name."""
    fed = clients((20, 20), (1, 1, 1))
    spent = UpdateNoise(Shift(torch.zeros(1)), epsilon=10.0).spent(torch.tensor([1, 60]), fed)
    assert set(spent) == {"epsilon", "epsilon_if_mean_over_samples"}
    for metric, multiplier in zip(spent, (4.84481 / 10 / 20, 4.84481 / 10), strict=True):
        accountant = RDPAccountant()
        accountant.history = [(multiplier, 1.0, 60)]
        assert spent[metric][1] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-4)
        assert spent[metric][0] < spent[metric][1]
    assert spent["epsilon_if_mean_over_samples"][0] == pytest.approx(11.15, abs=0.005)
    assert spent["epsilon"][0] > 600


# ---- what epsilon covers in a method


def private(**settings):
    return DPSGD(MLP, lr=0.1, batch=2, noise_multiplier=1.0, **settings)


def test_fedprox_passes_its_term_through_the_noise():
    fed, theta = clients((4, 6), (1, 6, 6)), MLP.init(0)
    inner = LocalSGD(MLP, lr=0.1, batch=2)
    noise = UpdateNoise(inner, epsilon=1.0)
    ours = run(FedProx(noise, mu=2.0), fed, MLP, rounds=2, seed=0)
    same = run(FedAvg(replace(noise, train=replace(inner, prox=2.0))), fed, MLP, rounds=2, seed=0)
    for metric in ("loss", "epsilon"):
        assert ours[ours.metric == metric].value.equals(same[same.metric == metric].value)
    assert theta.shape == (MLP.size,)
    with pytest.raises(ValueError, match=r"train=.*: FedProx needs a trainer with a field prox"):
        FedProx(Shift(theta))


def test_ocfl_trains_alone_as_privately_as_in_its_rounds():
    plain = LocalSGD(MLP, lr=0.1, batch=2)
    for train, pretrain in ((private(), plain), (plain, private())):
        with pytest.raises(ValueError, match=r"pretrain: .* both be private or neither"):
            OCFL(train, pretrain=pretrain)
    fed, rounds = clients((4, 4, 4), (1, 6, 6)), 3
    method = OCFL(private(), fraction=1.0, pretrain=private(epochs=5))
    record = run(method, fed, MLP, rounds=rounds, seed=0)
    accountant = RDPAccountant()
    accountant.history = [(1.0, 0.5, 10), (1.0, 0.5, 2 * rounds)]
    expected = accountant.get_epsilon(1e-5)
    assert record[record.metric == "epsilon"].value.tolist() == pytest.approx([expected] * 3)


def test_the_pretraining_of_a_trial_takes_the_privacy_of_its_rounds():
    settings = {
        "train": {"lr": 0.1, "privacy": {"kind": "DPSGD", "noise_multiplier": 1.0}},
        "method": {"kind": "OCFL", "pretrain": {"lr": 0.2, "epochs": 3}},
    }
    method = build.method(settings, MLP)
    assert isinstance(method.pretrain, DPSGD) and method.pretrain.noise_multiplier == 1.0
    assert (method.pretrain.lr, method.pretrain.epochs, method.train.lr) == (0.2, 3, 0.1)
    settings["train"]["privacy"] = {"kind": "UpdateNoise", "epsilon": 2.0}
    method = build.method(settings, MLP)
    assert isinstance(method.pretrain, UpdateNoise) and method.pretrain.train.epochs == 3


REVEALED = {
    "CBCC": ["class frequencies"],
    "ABFA": ["accuracies on validation samples"],
    "CAFA": ["class frequencies", "accuracies on validation samples"],
    "FedAC": ["losses"],
    "IFCA": ["chosen clusters"],
    "FedAvg": None,
    "DCFL": None,
}


@pytest.mark.parametrize("name", REVEALED)
def test_a_record_says_what_epsilon_does_not_cover(name):
    fed = clients((4, 4), (1, 6, 6))
    fed = replace(fed, x_val=fed.x_test, y_val=fed.y_test, mask_val=fed.mask_test)
    method, without = (
        getattr(algorithms, name)(train, fraction=1.0)
        for train in (private(), LocalSGD(MLP, lr=0.1))
    )
    record = run(method, fed, MLP, rounds=1, seed=0)
    assert record.attrs.get("not_in_epsilon") == REVEALED[name]
    assert "not_in_epsilon" not in run(without, fed, MLP, rounds=1, seed=0).attrs
    if REVEALED[name]:
        assert "No epsilon covers" in type(method).__doc__


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: DPSGD(MLP, lr=1), "give one of the two"),
        (lambda: DPSGD(MLP, lr=1, epsilon=1, noise_multiplier=1), "give one of the two"),
        (lambda: DPSGD(MLP, lr=1, epsilon=-1), "epsilon=-1"),
        (lambda: DPSGD(MLP, lr=1, noise_multiplier=-1), "noise_multiplier=-1"),
        (lambda: DPSGD(MLP, lr=1, epsilon=1, delta=0), "delta=0"),
        (lambda: DPSGD(MLP, lr=1, epsilon=1, clip=0), "clip=0"),
        (lambda: DPSGD(MLP, lr=1, epsilon=1, participations=0), "participations=0"),
        (lambda: DPSGD(MLP, lr=0, epsilon=1), "lr=0"),
        (lambda: UpdateNoise(LocalSGD(MLP, lr=1), epsilon=0), "epsilon=0"),
        (lambda: UpdateNoise(LocalSGD(MLP, lr=1), epsilon=1, clip=-2), "clip=-2"),
    ],
)
def test_errors_name_the_value(make, named):
    with pytest.raises(ValueError) as error:
        make()
    assert named in str(error.value)


def test_batch_norm_is_refused():
    model = vgg19(width=1 / 32)
    fed = clients((4,), (3, 32, 32), torch.float32)
    with pytest.raises(ValueError, match="BatchNorm2d"):
        DPSGD(model, lr=0.1, noise_multiplier=1.0)(
            model.init(0)[None], fed, torch.tensor([0]), 0, 0
        )
