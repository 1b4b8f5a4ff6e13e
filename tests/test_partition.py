"""Images carry their own number (and label) in their pixels, so that every split can be checked
sample by sample.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust import partition
from fedclust.datasets import Dataset


def for_all(**kw):
    return lambda test: settings(deadline=None, max_examples=25)(given(**kw)(test))


def numbered(y, y_test=(), classes=None, name="numbered", stand_in=None) -> Dataset:
    """2 x 2 images: number (two bytes), label, 1; the test half is numbered on."""
    y, y_test = torch.as_tensor(y).long(), torch.as_tensor(y_test).long()
    labels = torch.cat([y, y_test])
    number = torch.arange(len(labels))
    x = torch.stack([number // 256, number % 256, labels, torch.ones_like(number)], 1).view(
        -1, 1, 2, 2
    )
    classes = int(labels.max()) + 1 if classes is None else classes
    x, x_test = x.to(torch.uint8).split([len(y), len(y_test)])
    names = tuple(map(str, range(classes)))
    return Dataset(
        name, x, y, x_test, y_test, names, source="by hand", sha256="", stand_in=stand_in
    )


def balanced(per_class=60, classes=10, test=20, **kw) -> Dataset:
    y = torch.arange(classes)
    return numbered(y.repeat(per_class), y.repeat(test), **kw)


@st.composite
def datasets(draw, classes=(2, 8), n=(80, 300)):
    """Uneven classes, none rarer than 40: a tenth of half a class is still a sample."""
    c, rng = draw(st.integers(*classes)), np.random.default_rng(draw(st.integers(0, 10**6)))
    p = rng.dirichlet(np.full(c, 2.0))
    y, y_test = (
        np.r_[np.arange(c).repeat(40), rng.choice(c, draw(st.integers(*n)), p=p)] for _ in range(2)
    )
    return numbered(y, y_test, classes=c)


def held(fed, half="train"):
    """Per client the numbers of the images it holds; their labels must be as they came."""
    x, y, mask = fed.half(half)
    pixels = (x * 255).round().long().flatten(2)  # (N, M, 4)
    assert (x[~mask] == 0).all() and (y[~mask] == 0).all()
    assert (pixels[mask][:, 3] == 1).all()
    return [(p[m][:, 0] * 256 + p[m][:, 1]).tolist() for p, m in zip(pixels, mask, strict=True)]


def labels_of(fed, half="train"):
    """Per client the labels that its images came with."""
    x, _, mask = fed.half(half)
    return [(x[i, mask[i], 0, 1, 0] * 255).round().long().tolist() for i in range(len(fed))]


def flat(lists):
    return [i for mine in lists for i in mine]


def counts(data, half="train"):
    return torch.bincount(data.y if half == "train" else data.y_test, minlength=len(data.classes))


SPLITS = {
    "iid": lambda data, **kw: partition.iid(data, 6, **kw),
    "label_slices": lambda data, **kw: partition.label_slices(data, 6, 2, **kw),
    "dirichlet_rotated": lambda data, **kw: partition.dirichlet_rotated(
        data, 6, samples=10, rotate=False, **kw
    ),
    "class_table": lambda data, **kw: partition.class_table(
        data,
        partition.draw_table(len(data.classes), 3, len(data.classes) - 1),
        devices=6,
        relabel=False,
        **kw,
    ),
    "class_groups": lambda data, **kw: partition.class_groups(data, 6, 2, **kw),
    "iid_mix": lambda data, **kw: partition.iid_mix(data, 3, 3, classes_per_client=(1, 2), **kw),
    "iid_mix own": lambda data, **kw: partition.iid_mix(
        data, 3, 3, classes_per_client=(1, 2), test="own", **kw
    ),
    "iid_mix shards": lambda data, **kw: partition.iid_mix(
        data, 2, 8, generator="shards", classes_per_client=(1, 2), **kw
    ),
}


# ------------------------------------------------------------------------------------------------
# every partitioner


@pytest.mark.parametrize("name", SPLITS)
@for_all(data=datasets(), seed=st.integers(0, 99))
def test_no_sample_is_held_twice_and_labels_stay_with_their_images(name, data, seed):
    fed = SPLITS[name](data, seed=seed)
    halves = ["train", "test"] + ["val"] * (fed.x_val is not None)
    numbers = [i for half in halves for i in flat(held(fed, half))]
    assert len(numbers) == len(set(numbers))
    assert all(flat(labels_of(fed, h)) == fed.half(h)[1][fed.half(h)[2]].tolist() for h in halves)
    if name != "dirichlet_rotated":
        assert max(flat(held(fed))) < len(data.y) <= min(flat(held(fed, "test")))
    assert (fed.sizes > 0).all()
    assert fed.ids.tolist() == list(range(len(fed))) and fed.classes == len(data.classes)


@pytest.mark.parametrize("name", [n for n in SPLITS if n != "dirichlet_rotated"])
@for_all(data=datasets(), seed=st.integers(0, 99))
def test_all_training_samples_of_the_classes_held_are_given_out(name, data, seed):
    fed = SPLITS[name](data, seed=seed)
    given_out = partition.class_counts(fed).sum(0)
    if fed.x_val is not None:
        given_out += partition.class_counts(fed, "val").sum(0)
    missing = counts(data) - given_out
    if "iid_mix" in name:  # a class that no few-class client drew stays with the IID clients
        assert all(
            m == 0 or not (partition.class_counts(fed)[fed.group > 0, c]).any()
            for c, m in enumerate(missing)
        )
    else:
        held_by_some = (
            (given_out > 0) if name == "class_table" else torch.ones_like(missing, dtype=torch.bool)
        )
        assert (missing[held_by_some] == 0).all()


@pytest.mark.parametrize(
    "name", [n for n in SPLITS if n not in ("dirichlet_rotated", "iid_mix", "iid_mix shards")]
)
@for_all(data=datasets(), seed=st.integers(0, 99))
def test_each_held_out_image_of_a_held_class_is_with_a_client_that_holds_the_class(
    name, data, seed
):
    fed = SPLITS[name](data, seed=seed)
    train, test = partition.class_counts(fed), partition.class_counts(fed, "test")
    if fed.x_val is not None:
        train += partition.class_counts(fed, "val")
    somebody = train.sum(0) > 0
    assert torch.equal(test.sum(0)[somebody], counts(data, "test")[somebody])
    if name in ("label_slices", "iid_mix own"):  # in a client's own proportions, to the sample
        ideal = train * counts(data, "test") / train.sum(0).clamp(min=1)
        assert ((test - ideal).abs() <= 1).all()
        assert not test[train == 0].any()


@pytest.mark.parametrize("name", SPLITS)
def test_the_seed_is_the_split(name):
    data = balanced()
    one, same, other = (SPLITS[name](data, seed=s) for s in (3, 3, 4))
    assert all(
        torch.equal(getattr(one, f), getattr(same, f))
        for f in ("x", "y", "mask", "x_test", "y_test", "group")
    )
    assert held(one) != held(other) and held(one, "test") != held(other, "test")


@pytest.mark.parametrize("name", SPLITS)
def test_limit_keeps_a_subset(name):
    data = balanced()
    whole, small = SPLITS[name](data), SPLITS[name](data, limit=7)
    assert small.sizes.tolist() == [min(7, n) for n in whole.sizes.tolist()]
    assert all(set(few) <= set(all_) for few, all_ in zip(held(small), held(whole), strict=True))
    assert held(small, "test") == held(whole, "test")
    assert torch.equal(small.group, whole.group)


def test_validation_share():
    fed = partition.label_slices(balanced(), 6, 2, validation=0.2)
    without = partition.label_slices(balanced(), 6, 2)
    assert fed.sizes.tolist() == [80] * 6 and fed.mask_val.sum(1).tolist() == [20] * 6
    assert [sorted(a + b) for a, b in zip(held(fed), held(fed, "val"), strict=True)] == list(
        map(sorted, held(without))
    )


@pytest.mark.parametrize("holdout", [0.2, None])
def test_holdout_is_taken_from_the_training_half(holdout):
    data = balanced(
        test=20 if holdout else 0
    )  # a set without a test half gives a fifth of what it has
    fed = partition.label_slices(data, 10, 1, holdout=holdout)
    assert fed.mask.sum() == 480 and fed.mask_test.sum() == 120
    assert sorted(flat(held(fed)) + flat(held(fed, "test"))) == list(range(600))


def test_pixels_are_normalised_and_padding_is_zero():
    data = numbered([0, 1] * 5, [0, 1]).scaled((0.5,), (0.25,))
    fed = partition.iid(data, 3)
    assert fed.x.dtype == torch.float32 and fed.sizes.tolist() == [4, 3, 3]
    assert torch.allclose(fed.x[fed.mask][:, 0, 1, 1], torch.tensor((1 / 255 - 0.5) / 0.25))
    assert (fed.x[~fed.mask] == 0).all()


# ------------------------------------------------------------------------------------------------
# one by one


@for_all(data=datasets(), clients=st.integers(1, 20), seed=st.integers(0, 99))
def test_iid_shares_are_equal(data, clients, seed):
    fed = partition.iid(data, clients, seed=seed)
    for half in ("train", "test"):
        sizes = fed.half(half)[2].sum(1)
        assert sizes.max() - sizes.min() <= 1
    assert len(flat(held(fed))) == len(data.y) and len(flat(held(fed, "test"))) == len(data.y_test)
    assert not fed.group.any()


def test_iid_clients_have_every_class():
    table = partition.class_counts(partition.iid(balanced(), 6))
    assert (
        table.min() >= 2 and table.max() <= 22 and len(table.unique()) > 5
    )  # 10 of each on average, at random


@for_all(data=datasets(), clients=st.integers(1, 10), k=st.integers(1, 3), seed=st.integers(0, 99))
def test_label_slices_are_equal_and_hold_neighbouring_labels(data, clients, k, seed):
    fed = partition.label_slices(data, clients, k, seed=seed)
    assert sorted(flat(held(fed))) == list(range(len(data.y)))
    assert fed.sizes.max() - fed.sizes.min() <= k
    if k == 1:  # a slice of sorted labels: no client reaches into another's inner labels
        spans = sorted((min(mine), max(mine)) for mine in labels_of(fed))
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_label_slices_by_hand():
    data = numbered([2, 0, 1, 0, 2, 1, 1, 0, 2, 0, 1, 2], [0, 1, 2, 2, 1, 0])
    one = partition.label_slices(data, 3, 1)
    assert sorted(map(sorted, held(one))) == [[0, 4, 8, 11], [1, 3, 7, 9], [2, 5, 6, 10]]
    assert [set(mine) for mine in labels_of(one)] == [{g} for g in one.group.tolist()]
    assert [sorted(mine) for mine in labels_of(one, "test")] == [[g, g] for g in one.group.tolist()]
    assert sorted(one.group.tolist()) == [0, 1, 2]


def test_groups_of_two_slices_are_the_sets_of_labels():
    fed = partition.label_slices(balanced(per_class=40, classes=4), 40, 2, seed=1)
    sets = [frozenset(mine) for mine in labels_of(fed)]
    assert all(len(s) <= 2 for s in sets) and len(set(sets)) > 4
    same = torch.tensor([[a == b for a in sets] for b in sets])
    assert torch.equal(same, fed.group[:, None] == fed.group)


@for_all(
    data=datasets(), clients=st.integers(1, 8), alpha=st.floats(0.01, 100), seed=st.integers(0, 99)
)
def test_dirichlet_gives_every_client_exactly_what_was_asked(data, clients, alpha, seed):
    samples = (len(data.y) + len(data.y_test)) // clients  # up to the last image
    fed = partition.dirichlet_rotated(
        data, clients, alpha=alpha, samples=samples, test_share=0.25, seed=seed
    )
    assert fed.mask_test.sum(1).tolist() == [round(0.25 * samples)] * clients
    assert (fed.sizes + fed.mask_test.sum(1)).tolist() == [samples] * clients
    assert fed.group.tolist() == list(range(clients))
    assert ((fed.angle >= 0) & (fed.angle < 360)).all()


def test_dirichlet_limits():
    data = balanced(per_class=1000, classes=10, test=0)
    even = partition.dirichlet_rotated(data, 4, alpha=1e6, samples=1000, rotate=False)
    assert (partition.class_counts(even) / 800 - 0.1).abs().max() < 0.04
    skewed = partition.dirichlet_rotated(data, 4, alpha=1e-3, samples=20, rotate=False)
    owners = (partition.class_counts(skewed) > 0).sum(
        0
    )  # a label goes to one client only, unless that has no other
    assert (owners <= 1).sum() >= 8


def test_dirichlet_halves_have_one_distribution():
    data = balanced(per_class=2000, test=0)
    fed = partition.dirichlet_rotated(
        data, 3, alpha=0.3, samples=5000, test_share=0.5, rotate=False
    )
    train, test = partition.class_counts(fed), partition.class_counts(fed, "test")
    assert (
        (train - test).abs() <= 4 * (train + test) ** 0.5
    ).all()  # four deviations of a fair coin
    assert train.max() > 500 and train.min() < 25  # and a skewed one: 250 would be even


def test_dirichlet_keeps_the_upright_images_and_turns_them():
    data = balanced().scaled((0.1,), (0.5,))
    plain = partition.dirichlet_rotated(data, 5, samples=20, seed=2, rotate=False)
    fed = partition.dirichlet_rotated(data, 5, samples=20, seed=2)
    assert plain.upright is None and plain.angle is None
    assert torch.equal(fed.upright, plain.x) and torch.equal(fed.upright_test, plain.x_test)
    assert torch.allclose(fed.x[3:4], partition.turn(plain.x[3:4], fed.angle[3:4], fed.black[3:4]))
    assert torch.allclose(
        fed.x_test[3:4], partition.turn(plain.x_test[3:4], fed.angle[3:4], fed.black[3:4])
    )
    assert len(fed.angle.unique()) == 5 and fed.angle.min() < 180 < fed.angle.max()
    assert torch.allclose(fed.black, torch.tensor(-0.2))


BLACK = torch.zeros(1, 1)


@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("quarters", [0, 1, 2, 3, 4])
def test_quarter_turns_are_rot90(size, quarters):
    x = torch.rand(1, 3, 1, size, size)
    turned = partition.turn(x, torch.tensor([90.0 * quarters]), BLACK)
    assert torch.allclose(turned, torch.rot90(x, quarters, (-2, -1)), atol=1e-5)


def test_clients_and_channels_turn_on_their_own():
    x = torch.rand(2, 3, 3, 4, 4)
    turned = partition.turn(x, torch.tensor([90.0, 180.0]), torch.zeros(2, 3))
    assert torch.allclose(turned[0], torch.rot90(x[0], 1, (-2, -1)), atol=1e-5)
    assert torch.allclose(turned[1], x[1].flip(-2, -1), atol=1e-5)


def test_a_turn_of_45_degrees_blackens_the_corners_and_keeps_the_middle():
    turned = partition.turn(torch.ones(1, 1, 1, 9, 9), torch.tensor([45.0]), BLACK)[0, 0, 0]
    assert turned[4, 4] == pytest.approx(1) and turned[0, 0] == turned[8, 0] == turned[0, 8] == 0
    assert turned[0, 4] == pytest.approx(1)


def test_oblong_images_are_not_sheared():
    x = torch.zeros(1, 1, 1, 5, 9)
    x[..., 2, 6] = 1  # two to the right of the middle; a quarter turn later two above it
    turned = partition.turn(x, torch.tensor([90.0]), BLACK)[0, 0, 0]
    assert turned[0, 4] == pytest.approx(1, abs=1e-5) and turned.sum() == pytest.approx(1, abs=1e-4)


def test_turning_normalised_pixels_is_turning_pixels():
    x, mean, std = torch.rand(1, 4, 2, 7, 7), torch.tensor([0.3, 0.5]), torch.tensor([0.2, 2.0])
    angle = torch.tensor([77.0])
    normal = (x - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
    after = (partition.turn(x, angle, torch.zeros(1, 2)) - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
    assert torch.allclose(partition.turn(normal, angle, (-mean / std)[None]), after, atol=1e-5)


@pytest.mark.parametrize("name", partition.TABLES)
def test_the_papers_tables(name):
    table = np.array(partition.TABLES[name])
    assert table.shape == (4, 10) and ((table > 0).sum(1) == 8).all()
    assert (
        table.sum(0) == (5000 if name == "cifar10" else 6000)
    ).all()  # each column is the whole class


def test_class_table_is_exact_where_the_classes_are_what_the_paper_says():
    data = balanced(per_class=600, test=100, name="mnist")  # a tenth of fig. 2
    fed = partition.class_table(data, relabel=False)
    table = torch.tensor(partition.TABLES["mnist"])
    assert len(fed) == 80 and fed.classes == 10 and fed.group.bincount().tolist() == [20] * 4
    train, test = partition.class_counts(fed), partition.class_counts(fed, "test")
    for k in range(4):
        assert torch.equal(train[fed.group == k].sum(0), table[k] // 10)
        assert (test[fed.group == k].sum(0) - table[k] / 60).abs().max() < 1
        assert fed.sizes[fed.group == k].tolist().count(int(table[k].sum() // 200)) > 0
    assert fed.sizes[fed.group == 0].max() - fed.sizes[fed.group == 0].min() <= 1


def test_class_table_scales_a_column_to_its_class():
    data = numbered([0] * 10 + [1] * 30 + [2] * 7, [0, 1, 2] * 4)
    fed = partition.class_table(data, [[500, 100, 3], [500, 200, 0]], devices=2, relabel=False)
    assert partition.class_counts(fed).tolist() == [[5, 10, 7], [5, 20, 0]]
    assert partition.class_counts(fed, "test").tolist() == [[2, 1, 4], [2, 3, 0]]


def test_relabelling_numbers_the_classes_of_a_cluster_by_rank():
    data = balanced(per_class=60, name="other", stand_in="fashion_mnist")
    fed = partition.class_table(data, validation=0.3)
    assert fed.classes == 8
    for half in ("train", "val", "test"):
        _, y, mask = fed.half(half)
        for i, original in enumerate(labels_of(fed, half)):
            held_by_cluster = np.flatnonzero(
                partition.TABLES["fashion_mnist"][int(fed.group[i])]
            ).tolist()
            assert y[i, mask[i]].tolist() == [held_by_cluster.index(label) for label in original]
        assert not y[~mask].any()


def test_emnist_has_a_table_drawn_in_the_same_manner():
    data = balanced(per_class=50, classes=47, test=0, name="emnist")
    fed = partition.class_table(data, seed=5)
    assert len(fed) == 200 and fed.group.bincount().tolist() == [25] * 8 and fed.classes == 40
    assert fed.mask.sum() == 1880 and fed.mask_test.sum() == 470
    plain = partition.class_table(data, seed=5, relabel=False)
    held_by = [
        {label for i in torch.where(plain.group == k)[0] for label in labels_of(plain)[i]}
        for k in range(8)
    ]
    table = partition.draw_table(47, 8, 40, seed=5)
    assert held_by == [set(np.flatnonzero(row)) for row in table]
    assert (table.sum(1) == 40).all() and len({tuple(row) for row in table}) == 8
    assert (table != partition.draw_table(47, 8, 40, seed=6)).any()


@pytest.mark.parametrize("k, sizes", [(1, [10]), (2, [5, 5]), (3, [3, 3, 4]), (4, [2, 2, 3, 3])])
def test_the_class_groups_of_fedac(k, sizes):
    groups = partition.consecutive(k)
    assert list(map(len, groups)) == sizes and flat(groups) == list(range(10))
    fed = partition.class_groups(balanced(), 100, k)
    assert fed.group.bincount().tolist() == {1: [100], 2: [50, 50], 3: [34, 33, 33], 4: [25] * 4}[k]
    for i, (train, test) in enumerate(zip(labels_of(fed), labels_of(fed, "test"), strict=True)):
        assert set(train) | set(test) <= set(groups[int(fed.group[i])])
    assert len(flat(held(fed))) == 600 and len(flat(held(fed, "test"))) == 200


def test_groups_of_classes_may_share_a_class_or_leave_one_out():
    fed = partition.class_groups(balanced(per_class=60, classes=4), 2, [(0, 1), (1, 2)])
    assert partition.class_counts(fed).tolist() == [[60, 30, 0, 0], [0, 30, 60, 0]]


@for_all(
    data=datasets(classes=(5, 8), n=(400, 600)), iid=st.integers(0, 5), seed=st.integers(0, 99)
)
def test_iid_mix_of_the_paper(data, iid, seed):
    fed = partition.iid_mix(data, iid, 6, seed=seed, validation=0.2)
    table = partition.class_counts(fed) + partition.class_counts(fed, "val")
    assert fed.group.tolist() == [0] * iid + list(range(1, 7))
    assert table[:iid].sum(1).tolist() == [len(data.y) // (iid + 6)] * iid
    assert ((table[iid:] > 0).sum(1) <= 4).all() and (table[iid:].sum(1) > 0).all()
    assert (
        table[iid:].sum(0) > 0
    ).all()  # 6 clients with at least 2 classes: nobody's class is drawn first
    sizes = fed.mask_test.sum(1)
    assert sizes.sum() == len(data.y_test) and sizes.max() - sizes.min() <= 1


def test_iid_mix_draws_two_to_four_classes_and_random_amounts():
    table, group = partition.iid_mix_counts(torch.arange(10).repeat(5000), 0, 200, seed=1)
    assert set((table > 0).sum(1).tolist()) == {2, 3, 4} and group.min() == 1
    sizes = table.sum(1).double()
    assert sizes.sum() == 50000 and sizes.std() / sizes.mean() > 0.3


def test_amounts_divide_a_class_in_proportion():
    table, _ = partition.iid_mix_counts(
        torch.zeros(1100, dtype=torch.long), 0, 2, classes_per_client=(1, 1), seed=3
    )
    amounts = table.flatten() / 1100  # two weights of 10-100: neither below a tenth of the other
    assert amounts.sum() == 1 and amounts.min() >= 1 / 11


@for_all(seed=st.integers(0, 99))
def test_iid_mix_of_the_code(seed):
    data = balanced(per_class=100)
    fed = partition.iid_mix(data, 5, 15, generator="code", seed=seed, validation=0.0, test="own")
    table = partition.class_counts(fed)
    assert table.sum(1).tolist() == [50] * 20
    assert ((table[5:] > 0).sum(1) <= 2).all() and ((table[:5] > 0).sum(1) > 5).all()
    assert all(len(mine) == len(set(mine)) for mine in held(fed))
    iid = flat(held(fed)[:5])
    assert len(iid) == len(set(iid))
    assert len(flat(held(fed, "test"))) == len(set(flat(held(fed, "test"))))


def test_the_code_gives_one_or_two_classes_and_samples_may_stand_twice():
    table, _ = partition.iid_mix_counts(torch.arange(10).repeat(100), 0, 40, generator="code")
    assert set((table > 0).sum(1).tolist()) == {1, 2}
    table, _ = partition.iid_mix_counts(
        torch.arange(2).repeat(2 * 10**5), 0, 400, generator="code", classes_per_client=(2, 2)
    )
    smaller = (
        table.min(1).values / table.sum(1)
    ).mean()  # of two Dirichlet(0.5) shares: 1/2 - 1/pi on average
    assert smaller == pytest.approx(0.5 - 1 / np.pi, abs=0.03)
    numbers = flat(
        held(partition.iid_mix(balanced(per_class=100), 0, 10, generator="code", validation=0.0))
    )
    assert len(numbers) == 1000 and len(set(numbers)) < 1000


def test_shards_are_equal_within_a_class():
    table, _ = partition.iid_mix_counts(
        torch.arange(10).repeat(720), 0, 20, generator="shards", seed=2
    )
    kinds = (table > 0).sum(1)
    assert table.sum() == 7200 and kinds.min() >= 1 and kinds.max() <= 9 and len(kinds.unique()) > 3
    pieces = [column[column > 0] for column in table.T]
    assert all(p.max() - p.min() <= 1 for p in pieces)  # one shard per class and client
    assert len({len(p) for p in pieces}) > 1  # and some classes are cut finer than others


def test_neighbouring_classes_two_for_each_and_more_where_they_run_out():
    classes = []
    for seed in range(20):
        y = torch.arange(10).repeat(1000)
        table, group = partition.iid_mix_counts(y, 0, 20, generator="contiguous", seed=seed)
        assert table.sum() == 10_000 and (table.sum(0) == 1000).all()  # every sample has one owner
        assert group.tolist() == list(range(1, 21))
        sizes = table.sum(1).double()
        assert sizes.min() > 0 and sizes.std() / sizes.mean() > 0.2
        first = table[0].nonzero()[:, 0].tolist()
        assert first in [[c, c + 1] for c in range(9)] + [[0, 9]]  # nothing has run out yet
        assert (table[0][first][0] - table[0][first][1]).abs() <= 1
        classes += (table > 0).sum(1).tolist()
    assert sum(2 <= n <= 4 for n in classes) / len(classes) > 0.9  # as the paper describes them


@pytest.mark.parametrize("generator", ["paper", "code", "shards", "contiguous"])
def test_counts_without_images_are_those_of_the_federation(generator):
    data = balanced()
    table, group = partition.iid_mix_counts(data.y, 4, 16, generator=generator, seed=7)
    fed = partition.iid_mix(data, 4, 16, generator=generator, seed=7)
    assert torch.equal(table, partition.class_counts(fed) + partition.class_counts(fed, "val"))
    assert torch.equal(group, fed.group)


def test_class_counts_by_hand():
    fed = partition.class_groups(numbered([0, 0, 0, 1, 2], [0, 1, 2]), 2, [(0, 2), (1,)])
    assert partition.class_counts(fed).tolist() == [[3, 0, 1], [0, 1, 0]]
    assert partition.class_counts(fed, "test").tolist() == [[1, 0, 1], [0, 1, 0]]


DATA = balanced(per_class=6, classes=4, test=2)
EMNIST_BY_DIGITS = balanced(per_class=6, name="mnist", stand_in="emnist")
IMPOSSIBLE = {
    "no clients": (lambda: partition.iid(DATA, 0), "clients=0: must be .* 1"),
    "more clients than samples": (
        lambda: partition.iid(DATA, 25),
        "clients=25: must be between 1 .* and 24",
    ),
    "slices": (
        lambda: partition.label_slices(DATA, 20, 2),
        "40 slices of 24 training samples; ask for 1 to 24",
    ),
    "no slices": (lambda: partition.label_slices(DATA, 5, 0), "slices_per_client=0"),
    "alpha": (
        lambda: partition.dirichlet_rotated(DATA, 2, alpha=0.0, samples=5),
        "alpha=0.0: must be a number in \\(0, inf\\)",
    ),
    "too many samples": (
        lambda: partition.dirichlet_rotated(DATA, 4, samples=9),
        "32 images .* 1 to 3 clients",
    ),
    "empty test": (
        lambda: partition.dirichlet_rotated(DATA, 2, samples=5, test_share=0.0),
        r"test_share=0.0: must be a number in \(0, 1\)",
    ),
    "no table": (
        lambda: partition.class_table(DATA),
        "no table for 'numbered', only for mnist.* draw_table",
    ),
    "table": (
        lambda: partition.class_table(DATA, partition.TABLES["mnist"]),
        "has 4 classes: pass table=",
    ),
    "stand-in": (
        lambda: partition.class_table(EMNIST_BY_DIGITS),
        r"\(8, 47\), but 'mnist' has 10 classes",
    ),
    "empty cluster": (
        lambda: partition.class_table(DATA, [[1, 1, 1, 1], [0, 0, 0, 0]]),
        "every row needs",
    ),
    "negative": (lambda: partition.class_table(DATA, [[1, 1, 1, -1]]), "counts must be at least 0"),
    "devices": (
        lambda: partition.class_table(DATA, [[1] * 4] * 3, devices=2),
        "devices=2: must be between 3 .* and 24",
    ),
    "draw": (
        lambda: partition.draw_table(10, 4, 11),
        "each=11: must be a whole number in \\[1, 10\\]",
    ),
    "groups": (
        lambda: partition.class_groups(DATA, 8, 5),
        "groups=5: must be a whole number in \\[1, 4\\]",
    ),
    "classes": (
        lambda: partition.class_groups(DATA, 8, [(0, 4)]),
        r"groups: \(0, 4\) .* classes 0 to 3",
    ),
    "generator": (
        lambda: partition.iid_mix(DATA, generator="best"),
        "'best': must be one of 'paper', 'code', 'shards', 'contiguous'",
    ),
    "test": (lambda: partition.iid_mix(DATA, test="all"), "'all': must be one of 'global', 'own'"),
    "mix of none": (
        lambda: partition.iid_mix(DATA, 0, 0),
        "iid=0, other=0: there must be 1 to 24 clients",
    ),
    "few classes": (
        lambda: partition.iid_mix(DATA, 1, 1, classes_per_client=(2, 5)),
        r"most_classes=5: .*\[1, 4\]",
    ),
    "code": (
        lambda: partition.iid_mix(DATA, 0, 2, generator="code", classes_per_client=(1, 1)),
        "12 of a client's 12 samples .* which has 6: ask for more",
    ),
    "shards": (
        lambda: partition.iid_mix(DATA, 0, 2, generator="shards", classes_per_client=(1, 1)),
        "2 shards of 4 classes: ask for more clients",
    ),
    "validation": (
        lambda: partition.iid(DATA, 2, validation=1.0),
        "validation=1.0: must be a number in \\[0, 1\\)",
    ),
    "holdout": (
        lambda: partition.iid(DATA, 2, holdout=1.5),
        "holdout=1.5: must be a number in \\(0, 1\\)",
    ),
    "limit": (lambda: partition.iid(DATA, 2, limit=0), "limit=0: must be a whole number"),
    "emptied": (lambda: partition.class_groups(DATA, 12, [(0,), (1,)]), None),
    "empty": (lambda: partition.class_groups(DATA, 24, [(0,), (1,)]), "would have no sample"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_is_refused_with_the_remedy(case):
    ask, says = IMPOSSIBLE[case]
    if says is None:  # just possible
        assert (ask().sizes == 1).all()
        return
    with pytest.raises(ValueError, match=says):
        ask()


def test_a_dirichlet_skews_labels_and_makes_no_groups():
    data = balanced()
    fed = partition.dirichlet(data, 6, 0.1, seed=1)
    assert fed.group.tolist() == [0] * 6 and int(fed.sizes.sum()) == len(data.y)
    even = partition.dirichlet(data, 6, 1000.0, seed=1)
    largest = [
        (partition.class_counts(each).max(1).values / each.sizes).mean() for each in (fed, even)
    ]
    assert largest[0] > 0.4 and largest[1] < 0.15
    assert partition.dirichlet(data, 6, 0.1, seed=1, limit=20).sizes.max() == 20
    with pytest.raises(ValueError, match="alpha"):
        partition.dirichlet(data, 6, 0.0)
