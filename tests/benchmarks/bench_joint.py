"""Joint's decision step against the plain loop: 80 devices x 4 models, MLP 784-512-128-8, batch 64,
on MNIST, along a real run. With one thread its processor time counts, so that other work on the
machine matters little.

python -m tests.benchmarks.bench_joint [threads]
"""

import statistics
import sys

import torch

from fedclust import datasets, fast, partition
from fedclust.algorithms import Joint
from fedclust.algorithms.ifca import first_batches
from fedclust.algorithms.joint import Seen
from fedclust.models import mlp
from fedclust.training import LocalSGD
from tests.algorithms.test_joint import loop
from tests.benchmarks.loops import interleaved

TURNS = 5
LOOKED_AT = (1, 2, 5, 10, 20, 40, 60)  # iterations; the first, 0, has no gradients to look at


def main(threads: int = 1) -> None:
    torch.set_num_threads(threads)
    data = datasets.load("mnist")
    fed = partition.class_table(data, partition.TABLES["mnist"], devices=80, relabel=True, seed=0)
    model = mlp(data.shape, 8, hidden=(512, 128))
    method = Joint(LocalSGD(model, lr=0.1, batch=64), lam=0.2)
    state, ratios = method.init(model.init(0), fed, 0), []
    for t in range(max(LOOKED_AT) + 1):
        if t in LOOKED_AT:
            x, y, mask = first_batches(method.train, fed, 0, t)
            count, dw = mask.sum(1, keepdim=True), state.models - state.memory["previous"]
            given = model, state.models, dw, x, y, mask

            def ours(method: Joint = method, given: tuple = given) -> Seen:
                return fast.choose(method, *given[1:3], given[3:])

            def plain(given: tuple = given) -> Seen:
                return Seen(*loop(*given), method.update)

            both = ours(), plain()
            found, expected = (method.score(seen, dw, count).argmax(1) for seen in both)
            quick, slow = map(min, interleaved({"ours": ours, "loop": plain}, TURNS).values())
            ratios.append(slow / quick)
            print(
                f"iteration {t}: loop {slow:.3f} s, ours {quick:.3f} s, {slow / quick:.1f}x; "
                f"gradients of {int((ours().norm > 0).sum())} of {found.numel() * 4} pairs; "
                f"same choices: {int((found == expected).sum())} of {len(found)}"
            )
        state, _ = method.step(state, fed, 0, t)
    print(f"median over these iterations: {statistics.median(ratios):.1f}x")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
