"""More than one machine: a sweep on a Ray cluster of two nodes, one of them killed.

`make cluster` installs Ray and runs these tests; `make test` leaves those marked `cluster` out.
"""

import threading
import time

import pytest

from fedclust.experiments import sweep
from tests.experiments.test_sweeps import same, small


def test_ray_is_asked_for_by_name_when_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"needs Ray: \.venv/bin/pip install ray"):
        sweep([small()], 1, "ray", folder=tmp_path)


@pytest.mark.cluster
def test_a_cluster_that_does_not_answer_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(
        ValueError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'.*ray start --head"
    ):
        sweep([small()], 1, "ray", folder=tmp_path)


@pytest.mark.cluster
def test_a_node_is_killed_in_mid_sweep_and_the_numbers_are_the_same(tmp_path, monkeypatch):
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    doomed = cluster.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    trials = [small(seed, rounds=1500) for seed in range(4)]
    killed = []

    def kill():
        while not list(tmp_path.glob("ray/*/*.rounds")):
            time.sleep(0.05)
        cluster.remove_node(doomed, allow_graceful=False)
        killed.append(len(list(tmp_path.glob("ray/*/*.parquet"))))

    thread = threading.Thread(target=kill, daemon=True)  # must not outlive a sweep that failed
    thread.start()
    try:
        record = sweep(trials, 2, "ray", folder=tmp_path / "ray")
        thread.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert killed and killed[0] < len(trials), (
        "all trials were done before the node was killed: make them longer"
    )
    same(record, sweep(trials, 2, "loky", folder=tmp_path / "loky"))
