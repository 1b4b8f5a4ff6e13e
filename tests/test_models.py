"""Models as rows: sizes by hand, rows and modules back and forth, initial values."""

import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedclust.experiments.parts.cafa import torchvision_vgg
from fedclust.models import ChannelsLast, Model, cnn, mlp, vgg19

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
SMALL = [
    mlp((1, 6, 6), 5, (7, 4)),
    cnn((1, 12, 12), 5, (2, 3), 3, "each", (6,)),
    vgg19(width=1 / 32),
]
IDS = [model.name for model in SMALL]


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (mlp(GREY, 10, (200, 200)), 785 * 200 + 201 * 200 + 201 * 10),
        (mlp(GREY, 8, (512, 128)), 785 * 512 + 513 * 128 + 129 * 8),  # joint
        (
            cnn(GREY, 10, (10, 20), 5, "each", (50,)),
            26 * 10 + 251 * 20 + 321 * 50 + 51 * 10,
        ),  # OCFL, 4 x 4 places left
        (
            cnn(COLOUR, 10, (6, 16), 5, "each", (120, 84)),
            76 * 6 + 151 * 16 + 401 * 120 + 121 * 84 + 85 * 10,
        ),
        (
            cnn(GREY, 47, (6, 16), 5, "each", (256,)),
            26 * 6 + 151 * 16 + 257 * 256 + 257 * 47,
        ),  # DCFL, 4 x 4 x 16
        (
            cnn(GREY, 8, (32, 64), 3, "last", (128,)),
            10 * 32 + 289 * 64 + (64 * 144 + 1) * 128 + 129 * 8,
        ),  # joint
        (vgg19(), 20_565_834),
        (vgg19(width=1 / 8), 324_018),
    ],
    ids=lambda value: value.name if isinstance(value, Model) else None,
)
def test_sizes(model, parameters):
    assert model.parameters == parameters
    channels = sum(
        module.num_features
        for module in model.build().modules()
        if isinstance(module, nn.BatchNorm2d)
    )
    assert (
        model.size == parameters + 2 * channels
    )  # a mean and a variance travel per channel, no counters


def test_vgg19_is_torchvisions():
    with torch.device("meta"):
        theirs = torchvision_vgg().vgg19_bn().features
    ours = [m for m in vgg19().build() if not isinstance(m, (ChannelsLast, nn.Flatten, nn.Linear))]
    assert [str(m) for m in ours[: len(theirs)]] == [str(m) for m in theirs]


@pytest.mark.parametrize("model", SMALL, ids=IDS)
def test_layout_covers_the_row(model):
    assert [start for _, _, start, _ in model.layout] == [0, *(stop for *_, stop in model.layout)][
        :-1
    ]
    assert model.layout[-1][3] == model.size == len(model.init(0))
    assert [name for name, *_ in model.layout[:2]] == [
        name for name, _ in model.build().named_parameters()
    ][:2]


@pytest.mark.parametrize("model", SMALL, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_and_modules(model, dtype):
    row = torch.arange(model.size).to(dtype)
    net = model.module(row)
    assert torch.equal(model.row(net), row)
    named = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    for (name, shape, start, stop), part in zip(model.layout, model.split(row), strict=True):
        assert torch.equal(named[name].flatten(), row[start:stop])
        assert part.shape == shape
    with torch.no_grad():
        next(net.parameters()).zero_()
    assert torch.equal(row, torch.arange(model.size).to(dtype))  # a copy


@pytest.mark.parametrize("model", SMALL, ids=IDS)
def test_logits_are_the_modules(model):
    row, x = model.init(3), torch.randn(5, *model.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model.module(row).eval()(x)
    torch.testing.assert_close(model.logits(row, x), expected)
    assert not model.logits(row, x).requires_grad


def test_logits_in_chunks():
    model = SMALL[1]
    row, x = model.init(0), torch.randn(1100, *model.shape)
    torch.testing.assert_close(model.logits(row, x)[-3:], model.logits(row, x[-3:]))


def test_logits_by_hand():
    model = mlp(
        (2,), 2, (2,)
    )  # ReLU([[1, -1], [2, 0]] x + [0, 1]), then [[1, 1], [0, -1]] h + [0.5, 0]
    row = torch.tensor([1.0, -1, 2, 0, 0, 1, 1, 1, 0, -1, 0.5, 0])
    assert model.logits(row, torch.tensor([[1.0, 3]])).tolist() == [
        [0 + 3 + 0.5, -3]
    ]  # h = ReLU(-2, 3)


def test_pooling_before_relu_is_relu_before_pooling():
    """The usual order, in the usual memory layout: same predictions and gradients, bit for bit of
    what is kept."""
    model = cnn((2, 11, 11), 4, (3, 5), 3, "each", (6,))
    row, x = model.init(0).double(), torch.randn(6, 2, 11, 11, dtype=torch.float64)
    net = model.module(row)
    conv1, conv2, fc1, fc2 = (m for m in model.module(row) if isinstance(m, (nn.Conv2d, nn.Linear)))
    usual = nn.Sequential(
        conv1,
        nn.ReLU(),
        nn.MaxPool2d(2),
        conv2,
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        fc1,
        nn.ReLU(),
        fc2,
    ).to(memory_format=torch.contiguous_format)
    for one in (net, usual):
        one(x).square().sum().backward()
    torch.testing.assert_close(usual(x), net(x))
    for a, b in zip(net.parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@given(seed=st.integers(0, 1000), k=st.integers(0, 5))
def test_init_is_named_by_seed_and_k(seed, k):
    model = SMALL[0]
    assert torch.equal(model.init(seed, k), model.init(seed, k))
    assert not torch.equal(model.init(seed, k), model.init(seed, k + 1))
    assert not torch.equal(model.init(seed, k), model.init(seed + 1, k))


def test_init_values():
    model = vgg19(width=1 / 4)
    parts = {
        name: part
        for (name, *_), part in zip(model.layout, model.split(model.init(0)), strict=True)
    }
    for name, bound in [
        ("1.weight", 27**-0.5),
        ("1.bias", 27**-0.5),
        ("4.weight", 144**-0.5),
        ("55.weight", 128**-0.5),
    ]:
        assert 0.8 * bound < parts[name].abs().max() <= bound
        assert abs(parts[name].mean()) < bound / 3
    for name, value in [
        ("2.weight", 1),
        ("2.bias", 0),
        ("2.running_mean", 0),
        ("2.running_var", 1),
    ]:  # batch norm
        assert torch.all(parts[name] == value)


def test_building_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    model = mlp((3,), 2, (4,))
    model.module(model.init(0))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("model", SMALL, ids=IDS)
def test_models_travel(model):
    row = model.init(0)
    assert torch.equal(pickle.loads(pickle.dumps(model)).init(0), row)
    assert len(pickle.dumps(model)) < 10_000  # without weights


def own() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4, 3), nn.PReLU(), nn.LayerNorm(3), nn.Linear(3, 2)
    )


def test_a_module_of_ones_own():
    model = Model(own, (1, 2, 2), 2)
    parts = {
        name: part
        for (name, *_), part in zip(model.layout, model.split(model.init(0)), strict=True)
    }
    assert parts["2.weight"].tolist() == [0.25]  # PReLU keeps what it is made with
    assert parts["3.weight"].tolist() == [1, 1, 1]
    assert parts["4.weight"].abs().max() <= 3**-0.5
    assert model.logits(model.init(0), torch.randn(3, 1, 2, 2)).shape == (3, 2)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: mlp((1, 4, 4), 10, (0,)), "hidden=(0,)"),
        (lambda: mlp((1, 4, 4), 0), "classes=0"),
        (lambda: cnn(GREY, 10, pool="none"), "pool='none'"),
        (lambda: cnn((1, 4, 4), 10, (2, 2), 3).size, "nothing is left"),
        (lambda: vgg19((1, 28, 28)), "3 colours"),
        (lambda: vgg19(width=0.001), "width=0.001"),
        (lambda: vgg19(width=float("nan")), "width=nan"),
        (lambda: vgg19((3, 32)), "shape=(3, 32)"),
        (lambda: mlp((1, 4, 4), 10, 5), "hidden=5: must be a tuple"),
        (lambda: mlp((1, 4, 4), 10, (True,)), "hidden=(True,)"),
        (lambda: mlp((1, 4, 4), 10, (2.5,)), "hidden=(2.5,)"),
        (lambda: mlp((1, 4, 4), "10"), "classes='10'"),
        (lambda: cnn((4, 4), 10), "shape=(4, 4)"),
        (lambda: cnn(GREY, 10, channels=()), "channels=()"),
        (lambda: cnn(GREY, 10, kernel=True), "kernel=True"),
    ],
)
def test_errors_name_the_value(make, named):
    with pytest.raises(ValueError) as error:
        make()
    assert named in str(error.value)


def test_torchvision_can_be_imported_beside_any_torch():
    """In a fresh interpreter, without what an environment may have added to make it possible."""
    code = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "DeclareFirst"]
from fedclust.experiments.parts.cafa import torchvision_vgg
assert torchvision_vgg().vgg19
"""
    subprocess.run([sys.executable, "-c", code], check=True)
