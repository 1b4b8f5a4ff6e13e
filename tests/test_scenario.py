from dataclasses import replace

import pytest
import torch

from fedclust import partition
from fedclust.scenario import Drift, Join, drifts, staggered
from tests.test_partition import balanced


@pytest.fixture
def turned():
    data = balanced(per_class=20, classes=10).scaled((0.2,), (0.5,))
    return partition.dirichlet_rotated(data, 8, samples=20, seed=1)


def changed(before, after):
    """Positions whose images differ, and they must differ in both halves or in none."""
    train = (before.x != after.x).flatten(1).any(1)
    assert torch.equal(train, (before.x_test != after.x_test).flatten(1).any(1))
    return torch.where(train)[0].tolist()


def test_drift_turns_one_client_anew_from_its_upright_images(turned):
    after = Drift(5, client=3)(turned, 0)
    assert changed(turned, after) == [3] == torch.where(turned.angle != after.angle)[0].tolist()
    angle, black = after.angle[3:4], after.black[3:4]
    assert torch.allclose(after.x[3:4], partition.turn(turned.upright[3:4], angle, black))
    assert torch.allclose(after.x_test[3:4], partition.turn(turned.upright_test[3:4], angle, black))
    assert torch.equal(after.y, turned.y) and torch.equal(after.upright, turned.upright)
    assert 0 <= angle < 360


def test_every_drift_has_its_own_angle(turned):
    angles = [float(Drift(t, client=0)(turned, 0).angle[0]) for t in range(20)]
    assert len(set(angles)) == 20 and min(angles) < 60 and 300 < max(angles) < 360


def test_drift_leaves_the_federation_it_was_given_alone(turned):
    before = turned.x.clone(), turned.angle.clone()
    Drift(5, client=3)(turned, 0)
    assert torch.equal(turned.x, before[0]) and torch.equal(turned.angle, before[1])


def test_who_drifts_depends_on_seed_and_round_only(turned):
    who = {
        (seed, at): changed(turned, Drift(at)(turned, seed)) for seed in range(4) for at in range(5)
    }
    assert (
        all(len(mine) == 1 for mine in who.values()) and len({mine[0] for mine in who.values()}) > 4
    )
    assert torch.equal(Drift(7)(turned, 2).x, Drift(7)(turned, 2).x)
    twice = Drift(4)(Drift(3)(turned, 2), 2)
    assert set(changed(turned, twice)) == {*who[2, 3], *who[2, 4]}


def test_a_client_is_meant_by_its_name(turned):
    some = turned.take([6, 2, 4])
    assert changed(some, Drift(1, client=4)(some, 0)) == [2]


def test_drift_keeps_padding_empty(turned):
    real = torch.arange(16) < 9
    few = turned.take([0])
    few = replace(few, mask=real[None], x=few.x * real[:, None, None, None])
    after = Drift(1)(few, 0)
    assert not after.x[:, 9:].any() and changed(few, after) == [0]


def test_no_drift_without_upright_images():
    fed = partition.iid(balanced(per_class=2, classes=2), 2)
    with pytest.raises(ValueError, match="upright images: use dirichlet_rotated"):
        Drift(1)(fed, 0)


def test_an_absent_client_cannot_drift(turned):
    with pytest.raises(
        ValueError, match=r"client=3 is not there in round 4: drift one of \[0, 1\], or None"
    ):
        Drift(4, client=3)(turned.take([0, 1]), 0)


def test_staggered_clients_join_one_by_one(turned):
    start, joins = staggered(turned, start=5, every=10, rounds=31)
    assert start.ids.tolist() == [0, 1, 2, 3, 4]
    assert [join.at for join in joins] == [10, 20, 30] and [
        j.newcomers.ids.tolist() for j in joins
    ] == [[5], [6], [7]]
    fed = start
    for join in joins:
        fed = join(fed, 0)
    assert (
        torch.equal(fed.x, turned.x)
        and torch.equal(fed.ids, turned.ids)
        and torch.equal(fed.angle, turned.angle)
    )


def test_nobody_joins_in_the_round_after_the_last(turned):
    assert [join.at for join in staggered(turned, 5, 10, 30)[1]] == [10, 20]  # rounds are 0 to 29


def test_staggered_needs_enough_clients(turned):
    with pytest.raises(
        ValueError, match=r"start=5 and one newcomer .* need 10 clients, and there are 8"
    ):
        staggered(turned, 5, 10, 60)
    with pytest.raises(ValueError, match="start=0"):
        staggered(turned, 0, 10, 20)


def test_newcomers_can_drift(turned):
    fed = Join(10, turned.take([7]))(turned.take([0, 1]), 0)
    assert changed(fed, Drift(15, client=7)(fed, 0)) == [2]


def test_drifts_of_dcfl():
    assert [event.at for event in drifts(start=5, every=10, rounds=60)] == [5, 15, 25, 35, 45, 55]
    assert {event.client for event in drifts(5, 10, 60)} == {None}
