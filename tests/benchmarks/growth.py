"""How rounds, memory and DCFL's server step grow; and what that means for a million clients. Every
point is a process.

python -m tests.benchmarks.growth clients 1000    prints one point as JSON
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from fedclust import geometry
from fedclust.algorithms import DCFL, IFCA, FedAvg
from fedclust.algorithms.base import mean_by, sample
from fedclust.federation import Federation
from fedclust.metrics import score
from fedclust.models import mlp
from fedclust.rng import stream
from fedclust.simulation import run
from fedclust.training import LocalSGD

POINTS = {  # what grows, and how far
    "clients": (10, 100, 1000, 10_000),
    "clients, a tenth of them in a round": (10, 100, 1000, 10_000),
    "parameters": (8, 80, 800, 8000),  # hidden width of 784-h-10
    "clusters": (1, 2, 4, 8, 16, 32),
    "DCFL's server step": (50, 100, 250, 500, 1000, 2000, 5000),
}
SAMPLES, SHAPE = 20, (1, 28, 28)


def federation(n: int) -> Federation:
    draw, labels = (
        stream(0, "growth"),
        torch.randint(10, (n, SAMPLES), generator=stream(0, "labels")),
    )
    x = torch.randn(n, SAMPLES, *SHAPE, generator=draw)
    mask = torch.ones(n, SAMPLES, dtype=torch.bool)
    half = x[:, :4], labels[:, :4], mask[:, :4]
    return Federation(x, labels, mask, *half, torch.zeros(n, dtype=torch.long), torch.arange(n), 10)


def rounds(
    n: int = 100, hidden: int = 32, fraction: float = 1.0, k: int = 0, least: int = 3
) -> dict[str, Any]:
    """Seconds of a round of FedAvg (IFCA with k models), batches of 10, one epoch of 20 samples."""
    fed, model = federation(n), mlp(SHAPE, 10, (hidden,))
    train = LocalSGD(model, lr=0.01, batch=10)
    method = IFCA(train, k=k) if k else FedAvg(train, fraction)
    count = max(least, min(30, 20_000 // n))
    times = [time.perf_counter()]
    run(
        method,
        fed,
        model,
        rounds=count + 2,
        seed=0,
        eval_every=count + 2,
        progress=lambda *_: times.append(time.perf_counter()),
    )
    seconds = statistics.median(b - a for a, b in pairwise(times[1:-1]))
    return {
        "seconds": seconds,
        "parameters": model.size,
        "data_mb": fed.x.nbytes / 2**20,
        "peak_mb": peak(),
    }


def server(n: int, hidden: int = 32, groups: int = 10) -> dict[str, Any]:
    """Seconds of the distances, the index and the clustering of n updates in ten groups."""
    model, draw = mlp(SHAPE, 10, (hidden,)), stream(0, "growth")
    start, group = model.init(0)[None], torch.arange(n) % groups
    ends = start + 0.01 * torch.randn(groups, model.size, generator=draw)[group]
    ends += 0.005 * torch.randn(n, model.size, generator=draw)
    labels = torch.zeros(n, dtype=torch.long)
    spent, distances = timed(lambda: geometry.distance(start, ends, "complete", labels))
    index, _ = timed(lambda: geometry.dunn(distances, group))
    clustering, found = timed(lambda: DCFL(LocalSGD(model, lr=0.1)).cluster(distances, 0))
    clusters = 0 if found is None else int(found.max()) + 1
    return {
        "distance": spent,
        "dunn": index,
        "clustering": clustering,
        "clusters_found": clusters,
        "parameters": model.size,
        "data_mb": ends.nbytes / 2**20,
        "peak_mb": peak(),
    }


def shares(n: int = 1000) -> dict[str, float]:
    """Where the time of a FedAvg round with n clients goes, seconds."""
    fed, model = federation(n), mlp(SHAPE, 10, (32,))
    train, everyone = LocalSGD(model, lr=0.01, batch=10), torch.arange(n)
    theta, labels = model.init(0).expand(n, -1), torch.zeros(n, dtype=torch.long)
    models = model.init(0)[None]
    (
        train(theta, fed, everyone, 0, 0),
        score(model, models, labels, fed, "test"),
    )  # what is compiled is there then
    gc.freeze()
    whole, ends = timed(lambda: train(theta, fed, everyone, 0, 1))
    plans, _ = timed(lambda: [train.batches(fed, i, 0, 1) for i in range(n)])
    return {
        "draw the clients": timed(lambda: sample(fed, 0.5, 0, 1))[0],
        "shuffle the batches": plans,
        "train": whole - plans,
        "average": timed(lambda: mean_by(ends, labels, fed.sizes, models))[0],
        "evaluate": timed(lambda: score(model, models, labels, fed, "test"))[0],
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def peak() -> float:
    """Largest memory of this process so far, MB."""
    status = Path(
        "/proc/self/status"
    ).read_text()  # getrusage's would begin with what the parent had
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def point(kind: str, value: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    # else Python's collector may look through all that was imported, 0.2 s, while something is
    # measured
    gc.freeze()
    ways: dict[str, Callable[[int], dict[str, Any]]] = {
        "clients": lambda n: rounds(n),
        "clients, a tenth of them in a round": lambda n: rounds(n, fraction=0.1),
        "parameters": lambda hidden: rounds(20, hidden),
        "clusters": lambda k: rounds(100, k=k),
        "DCFL's server step": server,
        "shares": shares,
    }
    return ways[kind](value)


def measure(kind: str, value: int) -> dict[str, Any]:
    """A point in a process of its own, so that its memory is its own."""
    command = [sys.executable, "-m", "tests.benchmarks.growth", kind, str(value)]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["killed"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(point(sys.argv[1], int(sys.argv[2]))))
