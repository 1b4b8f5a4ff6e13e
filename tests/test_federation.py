from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust.federation import Federation, lengthen


def small(sizes, ids=None, tests=1, classes=3, value=1.0, **rest) -> Federation:
    """Client i has sizes[i] images of 1 x 2 x 2, all of them `value` + i."""
    halves = {
        half: [
            (torch.full((n, 1, 2, 2), value + i), torch.full((n,), i % classes))
            for i, n in enumerate(counts)
        ]
        for half, counts in (("train", sizes), ("test", [tests] * len(sizes)))
    }
    ids = None if ids is None else torch.tensor(ids)
    return Federation.stack(
        halves, group=torch.arange(len(sizes)), classes=classes, ids=ids, **rest
    )


def test_shorter_clients_are_padded_and_masked():
    fed = small([2, 0, 3])
    assert fed.x.shape == (3, 3, 1, 2, 2) and fed.x_test.shape == (3, 1, 1, 2, 2)
    assert fed.mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert fed.x[..., 0, 0, 0].tolist() == [[1, 1, 0], [0, 0, 0], [3, 3, 3]]
    assert fed.y.tolist() == [[0, 0, 0], [0, 0, 0], [2, 2, 2]]
    assert fed.sizes.tolist() == [2, 0, 3] and len(fed) == 3 and fed.shape == (1, 2, 2)
    assert fed.ids.tolist() == [0, 1, 2] and fed.x_val is None


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_stacking_and_taking_lose_nothing(sizes, seed):
    fed = small(sizes, ids=[10 * i for i in range(len(sizes))])
    assert fed.sizes.tolist() == sizes and fed.mask.sum() == sum(sizes)
    order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(seed))
    taken = fed.take(order)
    assert (
        taken.sizes.tolist() == [sizes[i] for i in order]
        and taken.ids.tolist() == (10 * order).tolist()
    )
    for at, i in enumerate(order.tolist()):
        assert torch.equal(taken.x[at], fed.x[i]) and taken.group[at] == fed.group[i]


def test_halves_by_name():
    fed = small([1, 2])
    assert fed.half("train")[0] is fed.x and fed.half("test")[2] is fed.mask_test
    with pytest.raises(ValueError, match=r"ask the partitioner \(validation=0\.2\)"):
        fed.half("val")
    with pytest.raises(ValueError, match="half='dev': must be one of 'train', 'val', 'test'"):
        fed.half("dev")


def test_join_pads_to_the_longer():
    a, b = small([1, 2]), small([4], ids=[7], tests=3, value=9.0)
    for one, other in ((a, b), (b, a)):
        both = one.join(other)
        assert len(both) == 3 and both.x.shape[1] == 4 and both.x_test.shape[1] == 3
        assert both.ids.tolist() == one.ids.tolist() + other.ids.tolist()
        assert both.sizes.tolist() == one.sizes.tolist() + other.sizes.tolist()
        assert torch.equal(both.take(range(len(one))).x[:, : one.x.shape[1]], one.x)
        assert both.x.sum() == one.x.sum() + other.x.sum()


def test_what_belongs_to_clients_is_taken_and_joined_with_them():
    def turned(sizes, ids, angle):
        fed = small(sizes, ids)
        return replace(
            fed, upright=fed.x + 1, upright_test=fed.x_test + 1, angle=torch.tensor(angle)
        )

    both = turned([1], [0], [30.0]).join(turned([2, 1], [1, 2], [60.0, 90.0]))
    assert both.angle.tolist() == [30, 60, 90] and both.upright.shape == both.x.shape
    assert both.take([2]).angle.tolist() == [90]


@pytest.mark.parametrize(
    "change, says",
    [
        ({"ids": torch.tensor([0, 5])}, r"client ids \[0\] exist already"),
        ({"classes": 4}, "4 classes of .* to clients with 3 classes"),
        (
            {"x": torch.zeros(2, 1, 1, 5, 5)},
            r"\(1, 5, 5\) to clients with 3 classes of \(1, 2, 2\)",
        ),
        ({"angle": torch.zeros(2)}, "only one side of the join has 'angle'"),
    ],
)
def test_what_does_not_fit_is_not_joined(change, says):
    newcomers = replace(small([1, 1], ids=[4, 5]), **change)
    with pytest.raises(ValueError, match=says):
        small([1, 1]).join(newcomers)


def test_another_float_type_is_for_images_only():
    fed = small([1, 2], angle=torch.tensor([1.0, 2.0])).to(torch.float64)
    assert fed.x.dtype == fed.x_test.dtype == fed.angle.dtype == torch.float64
    assert fed.y.dtype == fed.ids.dtype == torch.int64 and fed.mask.dtype == torch.bool
    assert fed.to("cpu").x.dtype == torch.float64


def test_lengthen():
    assert lengthen(torch.ones(2, 1), 3).tolist() == [[1, 0, 0]] * 2
    x = torch.ones(2, 3, 1)
    assert lengthen(x, 3) is x and lengthen(x, None) is x
