"""Joint's decision step against the plain loop: 80 devices x 4 models, MLP 784-512-128-8, batch 64, one thread.

OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_joint
"""

import time
from collections.abc import Callable

import torch

from fedclust.algorithms import Joint
from fedclust.decision import decisions
from fedclust.models import mlp
from fedclust.rng import stream
from fedclust.training import LocalSGD
from tests.algorithms.test_joint import loop

DEVICES, K, BATCH = 80, 4, 64


def best(work: Callable[[], object], repeat: int = 7) -> float:
    """Seconds of processor time, so that other work on the machine matters little."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    torch.set_num_threads(1)
    g, model = stream(0, "bench"), mlp((1, 28, 28), 8, hidden=(512, 128))
    x = torch.rand(DEVICES, BATCH, 1, 28, 28, generator=g)
    y, mask = torch.randint(8, (DEVICES, BATCH), generator=g), torch.ones(DEVICES, BATCH, dtype=torch.bool)
    rows = torch.stack([model.init(0, k) for k in range(K)])
    directions = 0.01 * torch.randn(rows.shape, generator=g)
    args = model, rows, directions, x, y, mask
    picks = [
        Joint(LocalSGD(model, lr=0.1), lam=0.2).score(*way(*args), directions, mask.sum(1, keepdim=True)).argmax(1)
        for way in (decisions, loop)
    ]
    fast, slow = best(lambda: decisions(*args)), best(lambda: loop(*args), 3)
    losses = best(lambda: decisions(model, rows, None, x, y, mask))
    same = int((picks[0] == picks[1]).sum())
    print(f"loop {slow:.3f} s, decisions {fast:.3f} s: {slow / fast:.1f}x; losses alone {losses:.3f} s")
    print(f"same choices: {same} of {DEVICES}")


if __name__ == "__main__":
    main()
