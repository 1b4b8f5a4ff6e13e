from dataclasses import dataclass, replace

import pandas as pd
import pytest
import torch

from fedclust import rng
from fedclust.algorithms import CFL, DCFL, OCFL, FedAvg, FedProx, LocalOnly
from fedclust.metrics import evaluate
from fedclust.record import describe
from fedclust.scenario import Join
from fedclust.simulation import run
from fedclust.training import LocalSGD, check_finite
from tests.algorithms.toy import Toward, regrouped, toy_federation, toy_model

MODEL = toy_model()
TARGETS = torch.randn(8, 4, generator=rng.stream(0, "targets"))
FUSE: dict = {"calls": 0, "blow": None, "nan": None, "repaired": False}


@dataclass(frozen=True, eq=False)
class Fused(Toward):
    """Stops the run when its fuse blows at this round, or turns a client's numbers into nan."""

    def __call__(self, theta, fed, clients, seed, t):
        FUSE["calls"] += 1
        if FUSE["blow"] == t:
            raise KeyboardInterrupt
        out = super().__call__(theta, fed, clients, seed, t)
        if FUSE["nan"] is not None and t == FUSE["nan"][0]:
            out[fed.ids[clients] == FUSE["nan"][1]] = torch.nan
        check_finite(out, fed.ids[clients])
        return out


@pytest.fixture(autouse=True)
def fresh_fuse():
    FUSE.update(calls=0, blow=None, nan=None)


def fused(rate=0.5):
    return Fused(TARGETS, rate)


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a, b, check_exact=True)
    assert a.attrs == b.attrs


def scores_aside(record: pd.DataFrame) -> pd.DataFrame:
    rows = (
        record[~record.metric.isin(["purity", "ari", "nmi"])]
        .drop(columns="group")
        .reset_index(drop=True)
    )
    return rows.astype({"metric": str})


# ---- the record


def test_the_record_of_fedavg_by_hand():
    """Full steps to the targets: after any round the model is the mean target, weighted 1 : 3,
    whatever came before.
    """
    fed = toy_federation([1, 3], group=[7, 8], ids=[5, 2])
    record = run(FedAvg(Toward(TARGETS)), fed, MODEL, rounds=2, seed=0)
    mean = (1 * TARGETS[5] + 3 * TARGETS[2]) / 4
    accuracy, loss = evaluate(MODEL, mean[None], torch.tensor([0, 0]), fed)
    assert list(record.columns) == [
        "algorithm",
        "seed",
        "round",
        "client",
        "group",
        "cluster",
        "metric",
        "value",
    ]
    for metric, expected in (("accuracy", accuracy), ("loss", loss)):
        rows = record[(record.metric == metric) & (record["round"] == 1)]
        assert (
            rows.client.tolist() == [5, 2]
            and rows.group.tolist() == [7, 8]
            and rows.cluster.tolist() == [0, 0]
        )
        assert rows.value.tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    server = record[(record.client == -1) & (record["round"] == 0)].set_index("metric").value
    assert server[["down", "up", "extra", "bytes"]].tolist() == [
        2,
        2,
        0,
        4 * 4 * 4,
    ]  # 4 models of 4 numbers of 4 bytes
    assert server[["clusters", "purity", "ari"]].tolist() == [1, 0.5, 0]
    assert set(record.algorithm) == {"FedAvg"} and set(record.seed) == {0}


def test_rounds_between_scores():
    record = run(FedAvg(Toward(TARGETS)), toy_federation(2), MODEL, rounds=6, seed=0, eval_every=4)
    assert sorted(set(record[record.metric == "accuracy"]["round"])) == [
        0,
        4,
        5,
    ]  # and always the last
    assert sorted(set(record[record.metric == "bytes"]["round"])) == list(range(6))


def test_what_was_run_stands_beside_the_record():
    record = run(FedAvg(Toward(TARGETS, 0.5), 0.5), toy_federation(4), MODEL, rounds=1, seed=3)
    about = record.attrs
    assert about["algorithm"]["name"] == "FedAvg" and about["algorithm"]["fraction"] == 0.5
    assert (
        about["algorithm"]["train"]["name"] == "Toward"
        and about["algorithm"]["train"]["rate"] == 0.5
    )
    assert (about["rounds"], about["seed"], about["clients"], about["numbers"]) == (1, 3, 4, 4)
    assert " at 0x" not in str(describe(OCFL(Toward(TARGETS)))) + str(
        describe(DCFL(Toward(TARGETS)))
    )


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rounds": 1, "eval_every": 0}])
def test_impossible_rounds(wrong):
    with pytest.raises(ValueError, match="must be a whole number"):
        run(FedAvg(Toward(TARGETS)), toy_federation(2), MODEL, seed=0, **wrong)


METHODS = [FedAvg, FedProx, LocalOnly, CFL, DCFL, OCFL]


def example(method):
    settings = {CFL: {"warmup": 0, "eps1": 10.0, "eps2": 0.1}, OCFL: {"fraction": 0.5}}.get(
        method, {}
    )
    return method(Toward(TARGETS, 0.5), **settings)


@pytest.mark.parametrize("method", METHODS)
def test_groups_are_for_scoring_only_and_a_seed_repeats(method):
    fed = toy_federation(6, group=[0, 1, 0, 1, 0, 1])
    a, again, b = (
        run(example(method), f, MODEL, rounds=4, seed=0) for f in (fed, fed, regrouped(fed))
    )
    same(a, again)
    pd.testing.assert_frame_equal(scores_aside(a), scores_aside(b), check_exact=True)


@pytest.mark.parametrize("method", METHODS)
def test_order_of_the_clients_does_not_matter(method):
    fed = toy_federation([1, 2, 3, 4, 5, 6])
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    a, b = (run(example(method), f, MODEL, rounds=4, seed=0) for f in (fed, fed.take(order)))
    key = ["round", "metric", "client"]
    a, b = (
        r.astype({"metric": str}).sort_values(key, ignore_index=True).drop(columns="cluster")
        for r in (a, b)
    )
    pd.testing.assert_frame_equal(a, b, rtol=1e-5, atol=1e-6)


# ---- newcomers


def test_newcomers_are_admitted_before_the_step_and_their_training_is_counted():
    fed, late = toy_federation(3), toy_federation(2, ids=[6, 7])
    record = run(DCFL(Toward(TARGETS)), fed, MODEL, rounds=3, seed=0, events=[Join(1, late)])
    trained = record[record.metric == "trained"]
    assert sorted(trained[trained["round"] == 0].client) == [0, 1, 2]
    sums = trained[trained["round"] == 1].groupby("client").value.sum()
    assert sums.to_dict() == {0: 1, 1: 1, 2: 1, 6: 2, 7: 2}
    down = record[(record.metric == "down") & (record["round"] == 1)].value
    assert sorted(down) == [2, 5]  # the joining round of two, the round of five
    assert sorted(set(record[(record.metric == "accuracy") & (record["round"] == 2)].client)) == [
        0,
        1,
        2,
        6,
        7,
    ]


def test_events_come_in_the_order_of_their_rounds():
    late = [Join(2, toy_federation(1, ids=[7])), Join(1, toy_federation(1, ids=[6]))]
    record = run(FedAvg(Toward(TARGETS)), toy_federation(2), MODEL, rounds=3, seed=0, events=late)
    accuracy = record[record.metric == "accuracy"]
    assert [accuracy[accuracy["round"] == t].client.tolist() for t in range(3)] == [
        [0, 1],
        [0, 1, 6],
        [0, 1, 6, 7],
    ]


# ---- stopped and resumed


@pytest.mark.parametrize("stop", [1, 2, 3, 5])
@pytest.mark.parametrize("method", [FedAvg, DCFL, OCFL])
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path, method, stop):
    settings = {
        "fed": toy_federation(4), "model": MODEL, "rounds": 6, "seed": 1, "eval_every": 2,
        "events": [Join(2, toy_federation(2, ids=[6, 7]))],
    }  # fmt: skip
    algorithm = method(fused())
    whole = run(algorithm, **settings)
    FUSE.update(blow=stop)
    path = tmp_path / "deep" / "run.pt"
    with pytest.raises(KeyboardInterrupt):
        run(algorithm, **settings, checkpoint=path)
    FUSE.update(blow=None, calls=0)
    same(whole, run(algorithm, **settings, checkpoint=path))
    joins = int(stop <= 2 and method is not FedAvg)
    assert (
        FUSE["calls"] == 6 - stop + joins
    )  # nothing is trained twice, nor clients alone before round 0
    assert [p.name for p in path.parent.iterdir()] == ["run.pt"]


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_may_end_with_its_goal(tmp_path, stop):
    settings = {"fed": toy_federation(4), "model": MODEL, "rounds": 8, "seed": 1}
    whole = run(FedAvg(fused(0.3)), **settings)
    curve = whole[whole.metric == "accuracy"].groupby("round").value.mean()
    goal, first = curve.max(), int(curve.idxmax())
    for after, last in ((1, first), (first + 3, first + 2), (8, 7)):
        ended = run(FedAvg(fused(0.3)), **settings, until={"after": after, "accuracy": goal})
        begin = whole[whole["round"] <= last].reset_index(drop=True)
        pd.testing.assert_frame_equal(ended, begin, check_exact=True)
    never = run(FedAvg(fused(0.3)), **settings, until={"after": 1, "accuracy": 1.1})
    pd.testing.assert_frame_equal(never, whole, check_exact=True)
    settings["until"] = {"after": 5, "accuracy": goal}
    ended = run(FedAvg(fused(0.3)), **settings)
    FUSE.update(blow=stop)
    with pytest.raises(KeyboardInterrupt):
        run(FedAvg(fused(0.3)), **settings, checkpoint=tmp_path / "run.pt")
    FUSE.update(blow=None)
    same(ended, run(FedAvg(fused(0.3)), **settings, checkpoint=tmp_path / "run.pt"))


def test_a_run_is_saved_while_it_goes(tmp_path, monkeypatch):
    monkeypatch.setattr("fedclust.record.CHECKPOINT_SECONDS", 0.0)
    path, seen = tmp_path / "run.pt", []
    settings = {
        "fed": toy_federation(3),
        "model": MODEL,
        "rounds": 3,
        "seed": 1,
        "checkpoint": path,
    }
    whole = run(FedAvg(fused()), **settings, progress=lambda t, of: seen.append((t, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)] and path.exists()
    FUSE.update(calls=0)
    same(whole, run(FedAvg(fused()), **settings))
    assert FUSE["calls"] == 0


def test_a_checkpoint_of_another_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedclust.record.CHECKPOINT_SECONDS", 0.0)
    path, fed = tmp_path / "run.pt", toy_federation(3)
    run(FedAvg(Toward(TARGETS)), fed, MODEL, rounds=2, seed=1, checkpoint=path)
    for other in ({"rounds": 3, "seed": 1}, {"rounds": 2, "seed": 2}):
        with pytest.raises(ValueError, match="belongs to another run: delete it"):
            run(FedAvg(Toward(TARGETS)), fed, MODEL, **other, checkpoint=path)


# ---- a client diverges


@pytest.mark.parametrize("method", [FedAvg, FedProx, LocalOnly, CFL, DCFL, OCFL])
def test_a_diverged_client_is_named_and_nothing_is_lost(tmp_path, method):
    settings = {"fed": toy_federation(4, ids=[4, 3, 7, 6]), "model": MODEL, "seed": 1}
    algorithm = replace(example(method), train=fused())
    if method is OCFL:
        algorithm = replace(algorithm, fraction=1.0)
    before = run(algorithm, **settings, rounds=2)
    whole = run(algorithm, **settings, rounds=4)
    FUSE.update(nan=(2, 7))
    with pytest.raises(
        FloatingPointError, match=r"^round 2: .*clients \[7\].*learning rate"
    ) as caught:
        run(algorithm, **settings, rounds=4, checkpoint=tmp_path / "run.pt")
    assert caught.value.record.drop(columns="metric").equals(before.drop(columns="metric"))
    FUSE.update(nan=None)
    same(whole, run(algorithm, **settings, rounds=4, checkpoint=tmp_path / "run.pt"))


def test_a_client_that_diverges_alone_before_the_first_round_is_named():
    FUSE.update(nan=(0, 3))
    with pytest.raises(FloatingPointError, match=r"before round 0: .*clients \[3\]"):
        run(OCFL(fused()), toy_federation(4), MODEL, rounds=2, seed=0)


@dataclass(frozen=True)
class Careless(FedAvg):
    """Loses the finite numbers on the server, where no trainer is to blame."""

    def average(self, state, fed, seed, t):
        new, chosen, theta = super().average(state, fed, seed, t)
        return new._replace(models=new.models / 0), chosen, theta


def test_models_lost_on_the_server_are_noticed_too():
    with pytest.raises(FloatingPointError, match=r"^round 0: .*clients \[0, 1\]"):
        run(Careless(Toward(TARGETS)), toy_federation(2), MODEL, rounds=2, seed=0)


def test_local_training_names_the_clients_that_diverge():
    """Client 1's images are huge: its step leaves the finite numbers; client 0's does not."""
    fed = toy_federation(2)
    fed.x[1] *= 1e30
    with pytest.raises(FloatingPointError, match=r"^round 0: .*clients \[1\]"):
        run(FedAvg(LocalSGD(MODEL, lr=1e30)), fed, MODEL, rounds=1, seed=0)
