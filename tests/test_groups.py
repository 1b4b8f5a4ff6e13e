"""Groups that turn their images or permute their labels."""

import math

import pytest
import torch

from fedclust import partition
from fedclust.datasets import load
from fedclust.experiments.parts.rotation import black_pixels, turn

DATA = load("glyphs", n=120, n_test=40)


def labels_of(fed, half, group=None):
    _, y, mask = fed.half(half)
    return sorted(y[mask & (group is None or (fed.group == group)[:, None])].tolist())


def test_right_angles_are_exact():
    plain = partition.rotated_groups(DATA, 8, (0, 0, 0, 0), validation=0.2)
    turned = partition.rotated_groups(DATA, 8, validation=0.2)
    assert turned.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert turned.angle.tolist() == [0, 0, 90, 90, 180, 180, 270, 270]
    for half in ("train", "val", "test"):
        (x, y, mask), (straight, same, _) = turned.half(half), plain.half(half)
        assert torch.equal(y, same)
        for i, k in enumerate(turned.group.tolist()):
            assert torch.equal(x[i], straight[i].rot90(k, (-2, -1)))
        assert not x[~mask].any()


def test_other_angles_are_interpolated_and_mean_the_same_direction():
    plain = partition.rotated_groups(DATA, 2, (0, 0), limit=5)
    black = black_pixels(DATA.mean, DATA.std, 1)
    for angle in (45.0, 89.9999):
        turned = partition.rotated_groups(DATA, 2, (0, angle), limit=5)
        expected = turn(plain.x[1:], torch.tensor([angle]), black)[0]
        torch.testing.assert_close(turned.x[1], expected)
    exact = partition.rotated_groups(DATA, 2, (0, 90), limit=5)
    assert (turned.x[1] - exact.x[1]).abs().max() < 1e-2


def test_equal_shares_and_one_owner():
    fed = partition.rotated_groups(DATA, 7, (0, 180))
    assert fed.sizes.max() - fed.sizes.min() <= 1
    assert labels_of(fed, "train") == sorted(DATA.y.tolist())
    assert labels_of(fed, "test") == sorted(DATA.y_test.tolist())


@pytest.mark.parametrize("make", [partition.rotated_groups, partition.label_swapped_groups])
def test_with_samples_every_group_draws_from_the_whole_set(make):
    """As in IFCA: 120 images for two clients of 60 each, in each of four groups."""
    settings = {"angles": (0,) * 4} if make is partition.rotated_groups else {"groups": IDENTITY}
    fed = make(DATA, 8, **settings, samples=60)
    assert (fed.sizes == 60).all()
    for k in range(4):
        assert labels_of(fed, "train", k) == sorted(DATA.y.tolist())
        assert labels_of(fed, "test", k) == sorted(DATA.y_test.tolist())
    first, second = fed.x[fed.group == 0], fed.x[fed.group == 1]
    assert not torch.equal(first, second)  # drawn anew
    with pytest.raises(ValueError, match=r"samples=61: the 2 clients .* at most 60"):
        make(DATA, 8, **settings, samples=61)


IDENTITY = [list(range(10))] * 4


def test_labels_are_permuted_and_nothing_else():
    orders = [list(range(10)), [1, 0, *range(2, 10)], list(range(9, -1, -1))]
    plain = partition.label_swapped_groups(DATA, 6, [orders[0]] * 3, validation=0.2)
    fed = partition.label_swapped_groups(DATA, 6, orders, validation=0.2)
    assert torch.equal(fed.x, plain.x) and torch.equal(fed.x_test, plain.x_test)
    for half in ("train", "val", "test"):
        (_, y, mask), (_, before, _) = fed.half(half), plain.half(half)
        for i, k in enumerate(fed.group.tolist()):
            assert torch.equal(y[i][mask[i]], torch.tensor(orders[k])[before[i][mask[i]]])
        assert not y[~mask].any()


def test_random_permutations_differ_and_are_the_seeds():
    ask = [partition.label_swapped_groups(DATA, 8, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(ask[0].y, ask[1].y) and not torch.equal(ask[0].y, ask[2].y)
    same = partition.label_swapped_groups(DATA, 4, samples=10)
    counts = partition.class_counts(same)
    assert len(counts.unique(dim=0)) == 4


@pytest.mark.parametrize("wrong", [(), "90", None, ["a"], [math.nan], [True]])
def test_angles_are_checked(wrong):
    with pytest.raises(ValueError, match=r"^angles?="):
        partition.rotated_groups(DATA, 4, wrong)


@pytest.mark.parametrize("wrong", [0, 2.5, None, "2", [[0, 1]], [[0] * 10], [3], [["a"] * 10]])
def test_permutations_are_checked(wrong):
    with pytest.raises(ValueError, match=r"^groups"):
        partition.label_swapped_groups(DATA, 4, wrong)


@pytest.mark.parametrize("clients", [3, 0, 121, "4", True, math.nan])
def test_clients_are_checked(clients):
    with pytest.raises(ValueError, match=r"^clients="):
        partition.rotated_groups(DATA, clients)


def test_a_third_has_labels_at_random_except_in_its_test_half():
    data = load("glyphs", n=600, n_test=60)
    fed = partition.poisoned(data, 6, validation=0.2)
    plain = partition.poisoned(data, 6, 0.0, validation=0.2)
    assert fed.group.tolist() == [0, 0, 0, 0, 1, 1] and plain.group.tolist() == [0] * 6
    for half in ("train", "val"):
        same = (fed.half(half)[1] == plain.half(half)[1]).double().mean(1)
        assert same[:4].eq(1).all() and same[4:].lt(0.4).all()
    assert fed.y_test.equal(plain.y_test) and fed.x.equal(plain.x)
    with pytest.raises(ValueError, match="share"):
        partition.poisoned(data, 6, 1.0)
