"""Ours, as a user calls it: `run` with FedAvg. It draws its batches itself: the same number, the
same size.
"""

import numpy as np
import torch
from common import clock, start

import fedclust
from fedclust import Federation, LocalSGD, algorithms, models, run


def main() -> None:
    work = start()
    how = dict(work.settings["model"])
    kind = how.pop("kind")
    x, y, x_test, y_test = map(torch.from_numpy, (work.x, work.y, work.x_test, work.y_test))
    halves = {
        "train": list(zip(x, y, strict=True)),
        "test": list(zip(x_test.chunk(len(x)), y_test.chunk(len(x)), strict=True)),
    }
    fed = Federation.stack(
        halves, group=torch.zeros(len(x), dtype=torch.long), classes=work.settings["classes"]
    )
    model = getattr(models, kind)(fed.shape, fed.classes, **how)
    train = LocalSGD(
        model, lr=work.lr, epochs=work.epochs, batch=work.batch, momentum=work.momentum
    )
    times = [clock()]
    record = run(
        algorithms.FedAvg(train, work.chosen.shape[1] / len(fed)), fed, model, rounds=work.rounds, seed=0,
        eval_every=work.rounds, progress=lambda *_: times.append(clock()),
    )  # fmt: skip
    last = record[(record.metric == "accuracy") & (record["round"] == work.rounds - 1)]
    work.report(
        times,
        float(np.mean(last.value)),
        f"fedclust {fedclust.__version__}, torch {torch.__version__}",
    )


main()
