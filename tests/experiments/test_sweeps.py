"""Sweeps: cached by content, resumed, and honest about why."""

import json
import os
import weakref
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedclust import paths
from fedclust.experiments import (
    Trial,
    TrialsFailed,
    alter,
    build,
    cache,
    shipped,
    sweep,
    sweeps,
    together,
)
from fedclust.experiments.cache import Place
from fedclust.fast.sharing import Results

SETTINGS = {
    "data": {"name": "glyphs", "n": 400, "n_test": 100, "seed": 0},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"kind": "mlp", "hidden": [8]},
    "train": {"lr": 0.1, "batch": 20},
    "method": {"kind": "FedAvg"},
    "rounds": 3,
}


def small(seed=0, label="FedAvg", **changes):
    return Trial({**SETTINGS, **changes}, seed, label)


@pytest.fixture(autouse=True)
def fresh():
    yield
    for function in (
        cache.fingerprint,
        cache.imports,
        cache.imported,
        cache.tree,
        cache.references,
        cache.referred,
    ):
        function.cache_clear()


def go(trials, folder, jobs=1, backend="sequential"):
    return sweep(trials, jobs, backend, folder=folder)


def reasons(record):
    return [(run["reused"], run["why"]) for run in record.attrs["runs"]]


def same(a, b):
    names = {"algorithm": str, "metric": str}  # categories depend on what else is in the frame
    a, b = (frame.reset_index(drop=True).astype(names) for frame in (a, b))
    pd.testing.assert_frame_equal(a, b, check_exact=True)


def test_second_sweep_trains_nothing_and_gives_the_same(tmp_path, monkeypatch):
    first = go([small()], tmp_path)
    assert reasons(first) == [(False, "new")]
    monkeypatch.setattr(sweeps, "attempt", lambda *a: pytest.fail("trained again"))
    second = go([small()], tmp_path)
    assert reasons(second)[0][0] is True
    same(first, second)


def test_label_and_tags_name_a_run_without_changing_it(tmp_path):
    record = go([small(label="a"), Trial(SETTINGS, 0, "b", {"panel": "left"})], tmp_path)
    assert len(list(tmp_path.glob("*/*.parquet"))) == 1
    assert set(record.algorithm.unique()) == {"a", "b"}
    assert record[record.algorithm == "b"].panel.unique().tolist() == ["left"]


def test_only_what_depends_on_a_change_runs_again(tmp_path):
    go([small(0), small(1)], tmp_path)
    record = go([small(0), small(1, train={"lr": 0.2, "batch": 20})], tmp_path)
    assert reasons(record) == [(True, "new"), (False, "new")]


def test_changed_code_is_named(tmp_path, monkeypatch):
    go([small()], tmp_path)
    real = cache.fingerprint
    monkeypatch.setattr(
        cache, "fingerprint", lambda m, n=None: "x" if m == "fedclust.training" else real(m, n)
    )
    assert reasons(go([small()], tmp_path)) == [(False, "changed: training.py")]


def test_changed_library_is_named(tmp_path, monkeypatch):
    go([small()], tmp_path)
    real = cache.version
    monkeypatch.setattr(cache, "version", lambda name: "0.0" if name == "torch" else real(name))
    assert reasons(go([small()], tmp_path)) == [(False, "changed: torch")]


def test_dependencies_are_the_methods_own_file_and_no_presentation():
    names = cache.dependencies(small())
    assert {
        "training.py",
        "simulation.py",
        "models.py",
        "algorithms.fedavg.py",
        "algorithms.base.py",
    } <= names.keys()
    assert not {"plots.py", "report.py", "papers.py", "cli.py", "algorithms.dcfl.py"} & names.keys()
    other = cache.dependencies(small(method={"kind": "DCFL"}))
    assert "algorithms.dcfl.py" in other


def test_fingerprint_ignores_comments_and_docstrings(tmp_path, monkeypatch):
    texts = ['"""A."""\nx = 1  # one\n', '"""B."""\n\nx = 1\n', '"""A."""\nx = 2\n']
    prints = []
    for n, text in enumerate(texts):
        path = tmp_path / f"{n}.py"
        path.write_text(text)
        monkeypatch.setattr(cache, "source", lambda _, path=path: path)
        prints.append(cache.fingerprint(f"text {n}"))
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_a_damaged_record_is_made_again(tmp_path, suffix):
    first = go([small()], tmp_path)
    path = next(tmp_path.glob(f"*/*{suffix}"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    second = go([small()], tmp_path)
    assert reasons(second) == [(False, "record damaged")]
    same(first, second)


def test_a_failed_trial_does_not_take_the_others_down(tmp_path):
    bad = small(label="bad", train={"lr": 1e12, "batch": 10, "steps": 30})
    with pytest.raises(TrialsFailed, match=r"(?s)1 of 2 trials failed.*bad seed 0.*not finite"):
        go([bad, small()], tmp_path)
    assert reasons(go([small()], tmp_path))[0][0] is True


def test_workers_and_order_change_nothing(tmp_path):
    trials = [small(seed) for seed in (0, 1, 2)]
    one = go(trials, tmp_path / "one")
    two = go(trials[::-1], tmp_path / "two", jobs=2, backend="loky")
    key = ["seed", "round", "client", "metric"]
    same(one.sort_values(key), two.sort_values(key))


def test_a_half_done_trial_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    whole = go([small(rounds=4)], tmp_path / "whole")
    from fedclust.algorithms import FedAvg

    real, seen = FedAvg.step, []

    def stop(self, state, fed, seed, t):
        if t == 2 and "stopped" not in seen:
            seen.append("stopped")
            raise KeyboardInterrupt
        seen.append(t)
        return real(self, state, fed, seed, t)

    monkeypatch.setattr(FedAvg, "step", stop)
    with pytest.raises(KeyboardInterrupt):
        go([small(rounds=4)], tmp_path / "half")
    resumed = go([small(rounds=4)], tmp_path / "half")
    assert seen == [0, 1, "stopped", 2, 3]
    assert reasons(resumed) == [(False, "resumed")]
    same(whole, resumed)


def test_a_damaged_checkpoint_costs_time_only(tmp_path):
    trial = small()
    place = Place.of(trial, tmp_path)
    place.folder.mkdir(parents=True)
    place.file(".ckpt").write_bytes(b"nonsense")
    same(go([trial], tmp_path), go([trial], tmp_path / "other"))


def test_shipped_records_are_taken_as_they_are(tmp_path, monkeypatch):
    first = go([small()], tmp_path / "cache")
    run = first.attrs["runs"][0]
    shipped.ship(tmp_path / "shipped", [(run["identity"], run)])
    monkeypatch.setattr(cache, "version", lambda name: "0.0")  # whatever has changed since
    second = sweep(
        [small()], 1, "sequential", folder=tmp_path / "empty", shipped=tmp_path / "shipped"
    )
    assert reasons(second) == [(True, "shipped record")]
    same(first, second)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: sweep([], jobs=0, folder=f), "jobs=0"),
        (lambda f: sweep([], backend="rai", folder=f), "backend='rai'"),
        (lambda f: go([small(method={"kind": "FedAvgg"})], f), "method 'FedAvgg' is not known"),
        (
            lambda f: go([small(model={"kind": "transformer"})], f),
            "model 'transformer' is not known",
        ),
    ],
)
def test_bad_requests_are_named(tmp_path, call, message):
    with pytest.raises((ValueError, TrialsFailed)) as error:
        call(tmp_path)
    assert message in str(error.value)


def test_identity_takes_1_and_1_0_for_the_same():
    assert small(train={"lr": 1}).identity == small(train={"lr": 1.0}).identity
    assert small().identity != small(1).identity


def test_half_a_file_is_never_seen(tmp_path):
    def fail(path):
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    target = tmp_path / "x.json"
    target.write_text("old")
    with pytest.raises(OSError, match="No space"):
        paths.write(target, fail)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_records_survive_parquet_with_their_types(tmp_path):
    record = go([small()], tmp_path)
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
    assert record.value.dtype == float and record["round"].max() == 2
    assert json.dumps(record.attrs["runs"], default=str)
    assert torch.get_num_threads() >= 1


def test_methods_that_start_alike_share_their_training_and_nothing_else(tmp_path, monkeypatch):
    kinds = [
        {"kind": "FedAvg"},
        {"kind": "CFL", "warmup": 2, "eps1": 9.0, "eps2": 0.0},
        {"kind": "FedProx", "mu": 0.5},
    ]
    trials = [small(label=m["kind"], method=m, rounds=4) for m in kinds]
    alone = [go([trial], tmp_path / trial.label) for trial in trials]
    trained, real = [], Results.__setitem__
    monkeypatch.setattr(Results, "__setitem__", lambda *a: trained.append(a[1][0]) or real(*a))
    together = go(trials, tmp_path / "together")
    same(together, pd.concat(alone))
    split = alone[1][alone[1].metric == "clusters"].set_index("round").value
    one = int((split == 1).sum())  # rounds after which CFL is still one cluster, that is FedAvg
    assert one == 2
    shared = one + 1  # the round that ends with the split too; then its halves go their own way
    calls = trained.count("LocalSGD.__call__")
    assert calls == 2 * 4 - shared  # FedProx is no FedAvg and trains elsewhere


def test_ocfl_and_the_training_alone_share_the_first_epoch(tmp_path, monkeypatch):
    """Two epochs alone, reversed updates and OCFL's start are three trainings of everybody, not
    five. Clients with false labels learn for themselves."""
    optics = {"kind": "OPTICS", "min_samples": 2, "xi": 0.1}
    epoch = {"lr": 0.1, "batch": 20}
    settings = {name: SETTINGS[name] for name in ("data", "partition", "model")}
    settings |= {"train": epoch, "epochs": 2, "estimators": {"optics": optics}, "poisoned": 0.5}
    ocfl = small(
        method={"kind": "OCFL", "pretrain": epoch, "estimator": optics, "fraction": 0.5},
        label="OCFL",
    )
    alone = [
        Trial(settings | {"attack": a, "epochs": n}, 0, a or "alone", task="alone")
        for a, n in ((None, 2), ("flip", 1), ("labels", 1))
    ]
    trained, real = [], Results.__setitem__

    def counted(results, key, value):
        if key[0] == "LocalSGD.__call__":
            trained.append(len(value))
        real(results, key, value)

    monkeypatch.setattr(Results, "__setitem__", counted)
    elsewhere = Trial({**ocfl.settings, "split_seed": 1}, 0, "other clients")
    assert together.beginning(ocfl) == together.beginning(alone[0]) != together.beginning(elsewhere)
    go([ocfl, *alone], tmp_path / "together")
    assert trained.count(4) == 3  # of all four clients; OCFL's rounds train two
    for trial in (ocfl, *alone):
        same(go([trial], tmp_path / "together"), go([trial], tmp_path / "apart"))


def test_alter_leaves_the_base_as_it_is():
    base = {"train": {"lr": 0.1, "privacy": {"epsilon": 10}}, "rounds": 3}
    changed = alter(base, {"train.privacy.epsilon": 2, "rounds": 5, "events": {}})
    assert changed == {"train": {"lr": 0.1, "privacy": {"epsilon": 2}}, "rounds": 5, "events": {}}
    assert base["train"]["privacy"]["epsilon"] == 10


def test_a_killed_worker_costs_time_only(tmp_path, monkeypatch):
    """As when memory runs out: a worker is killed from outside in mid-sweep, twice."""
    import threading
    import time

    import psutil

    trials = [small(seed, rounds=400) for seed in (0, 1)]
    killed, done = [], threading.Event()

    def kill():
        while len(killed) < 2 and not done.wait(0.2):
            for child in psutil.Process().children(recursive=True):
                if "LokyProcess" in " ".join(child.cmdline()) and list(
                    tmp_path.glob("cut/*/*.rounds")
                ):
                    child.kill()
                    killed.append(child.pid)
                    time.sleep(3)
                    break

    thread = threading.Thread(target=kill)
    thread.start()
    record = go(trials, tmp_path / "cut", jobs=2, backend="loky")
    done.set()
    thread.join()
    assert killed
    same(record, go(trials, tmp_path / "whole"))


def test_a_trial_that_always_loses_its_worker_is_reported(tmp_path, monkeypatch):
    def lost(*_):
        raise MemoryError("worker gone")

    monkeypatch.setattr(sweeps, "attempt", lost)
    with pytest.raises(
        TrialsFailed, match=r"(?s)FedAvg seed 0.*killed by the system, also alone.*worker gone"
    ):
        go([small()], tmp_path)


def test_a_full_disk_fails_the_trial_and_keeps_the_others(tmp_path, monkeypatch):
    real = cache.write

    def full(path, how):
        if Place.of(small(1), tmp_path).folder == path.parent:
            raise OSError(28, "No space left on device")
        real(path, how)

    monkeypatch.setattr(cache, "write", full)
    with pytest.raises(TrialsFailed, match=r"(?s)1 of 2 trials failed.*No space left"):
        go([small(0), small(1)], tmp_path)
    monkeypatch.undo()
    assert reasons(go([small(0)], tmp_path))[0][0] is True


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"no record can be kept in .*file.*FEDCLUST_ROOT"):
        go([small()], tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval_evry": 2}, "settings of a trial: eval_evry not known; there are data, eval_every"),
        ({"events": {"jion": 3}}, "events of a trial: jion not known; there are drift_every"),
    ],
)
def test_misspelt_settings_are_named_when_the_trial_is_made(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_missing_settings_are_named():
    with pytest.raises(ValueError, match="settings of a trial: model, rounds missing"):
        Trial({k: v for k, v in SETTINGS.items() if k not in ("model", "rounds")}, 0)


def test_a_trial_that_cannot_be_is_named_before_anything_is_trained(tmp_path):
    with pytest.raises(ValueError, match="trial 'typo': no data set 'mnst'"):
        go([small(), small(label="typo", data={"name": "mnst"})], tmp_path)
    assert not list(tmp_path.glob("*/*.parquet"))


def test_a_worker_keeps_one_federation_and_makes_room_for_the_next():
    settings = {
        "data": {"name": "glyphs", "n": 60, "n_test": 10},
        "partition": {"kind": "iid", "clients": 2},
    }
    first = weakref.ref(build.federation(settings, 0))
    assert build.federation(settings, 0) is first()
    assert build.federation(settings, 1) is not None and first() is None
