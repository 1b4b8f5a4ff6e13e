"""run(): the round loop around every method."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import fedclust
from fedclust.algorithms.base import Info, Method, State, cost
from fedclust.checks import Count, Whole, checked
from fedclust.federation import Federation
from fedclust.metrics import clustering, evaluate
from fedclust.models import Model
from fedclust.record import Checkpoint, Record, describe
from fedclust.training import check_finite


@checked
def run(
    algorithm: Method,
    fed: Federation,
    model: Model,
    *,
    rounds: Count,
    seed: Whole,
    events: Iterable[Any] = (),
    eval_every: Count = 1,
    checkpoint: str | os.PathLike | None = None,
    progress: Callable[[int, int], None] | None = None,
    until: dict[str, float] | None = None,
) -> pd.DataFrame:
    """Train `rounds` rounds and return the tidy record: one row per round, client and metric.

    Rows of the server have client, group and cluster -1. Rounds count from 0. They are scored after
    their step, every `eval_every` rounds and at the end. With `checkpoint` (a path) a run that was
    stopped continues where it was and gives the same record, bit for bit. `progress` is called
    after each round with the number of rounds done and of all rounds. With `until` a run ends
    sooner: `{"after": 100, "purity": 0.9}` ends it after 100 rounds or, if the purity has not been
    0.9 in any of them, in the round in which it is.

    >>> import fedclust as fc
    >>> data = fc.datasets.load("glyphs", n=200, n_test=50)
    >>> fed = fc.partition.iid(data, clients=4)
    >>> model = fc.models.mlp(data.shape, len(data.classes), hidden=(16,))
    >>> record = run(fc.algorithms.FedAvg(fc.LocalSGD(model, lr=0.1)), fed, model, rounds=2, seed=0)
    >>> list(record.columns)
    ['algorithm', 'seed', 'round', 'client', 'group', 'cluster', 'metric', 'value']
    >>> len(record.query("metric == 'accuracy'"))  # 2 rounds x 4 clients
    8
    """
    events = sorted(events, key=lambda event: event.at)
    about = {
        "algorithm": describe(algorithm),
        "events": [describe(event) for event in events],
        "rounds": rounds,
        "seed": seed,
        "eval_every": eval_every,
        "clients": len(fed),
        "numbers": model.size,
        "version": fedclust.__version__,
    }
    if until:
        about["until"] = until
    if algorithm.reveals and hasattr(algorithm.train, "spent"):
        about["not_in_epsilon"] = list(algorithm.reveals)
    saved = Checkpoint(Path(checkpoint), about) if checkpoint is not None else None
    if saved and (found := saved.restore()):
        state, record, done = found
    else:
        record, done = Record(about), 0
        try:
            state = algorithm.init(model.init(seed).to(fed.x.dtype), fed, seed)
        except FloatingPointError as error:
            raise FloatingPointError(f"before round 0: {error}") from error
    for t in range(rounds):
        for event in events:
            if event.at == t:
                fed = event(fed, seed)
        if t < done:  # a resumed run only needs the events
            continue
        try:
            present, joining = admitted(algorithm, state, fed, seed, t)
            new, info = algorithm.step(present, fed, seed, t)
            check_finite(new.models.sum(1, keepdim=True)[new.labels], fed.ids)
        except BaseException as error:
            if saved and t > done:
                saved.save(state, record, t)
            if isinstance(error, FloatingPointError):
                error.args = (f"round {t}: {error}",)
                error.record = record.frame()  # type: ignore[attr-defined]
            raise
        state = new
        record.note(t, joining, fed, state.labels)
        record.note(t, info, fed, state.labels)
        if t % eval_every == 0 or t == rounds - 1:
            models, labels, _ = algorithm.served(state, fed, seed, t)
            accuracy, loss = evaluate(model, models, labels, fed)
            scores = {"accuracy": accuracy, "loss": loss, **clustering(labels, fed.group)}
            record.note(t, scores, fed, labels)
        if progress is not None:
            progress(t + 1, rounds)
        if until and t % eval_every == 0 and t + 1 >= until["after"] and record.reached(until):
            break
        if saved and saved.due():
            saved.save(state, record, t + 1)
    spent = algorithm.spent(record.total("trained", fed), fed, about["clients"])
    record.note(t, spent, fed, state.labels)
    return record.frame()


def admitted(
    algorithm: Method, state: State, fed: Federation, seed: int, t: int
) -> tuple[State, Info]:
    """The state once newcomers, if there are any, have joined; and what that cost."""
    new = torch.arange(len(state.labels), len(fed))
    if not len(new):
        return state, {}
    trains, joined = algorithm.trains_newcomers(state), algorithm.admit(state, fed, seed, t)
    return joined, cost(joined, new, extra=len(new)) if trains else {}
