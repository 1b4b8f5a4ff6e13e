"""run(): the round loop around every method, and its record."""

import ctypes
import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

import fedclust
from fedclust.algorithms.base import Method, State, check_finite
from fedclust.federation import Federation
from fedclust.memo import Memo
from fedclust.metrics import clustering, evaluate
from fedclust.models import Model

CHECKPOINT_SECONDS = 20.0
KEPT = {-1: 2**31 - 1, -3: 2**25}  # mallopt's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, in bytes
LARGE = {-4: 0}  # M_MMAP_MAX: no block is so large that it goes back
COLUMNS = ("round", "client", "group", "cluster", "metric", "value")


def run(
    algorithm: Method,
    fed: Federation,
    model: Model,
    *,
    rounds: int,
    seed: int,
    events: Iterable[Any] = (),
    eval_every: int = 1,
    checkpoint: str | os.PathLike | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Train `rounds` rounds and return the tidy record: one row per round, client and metric.

    Rows of the server have client, group and cluster -1. Rounds count from 0 and are scored after their step, every
    `eval_every` rounds and at the end. With `checkpoint` (a path) a run that was stopped goes on where it was and gives
    the same record, bit for bit.

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
    return finish(play(algorithm, fed, model, rounds=rounds, seed=seed, events=events, eval_every=eval_every,
                       checkpoint=checkpoint, progress=progress))  # fmt: skip


def play(
    algorithm: Method,
    fed: Federation,
    model: Model,
    *,
    rounds: int,
    seed: int,
    events: Iterable[Any] = (),
    eval_every: int = 1,
    checkpoint: str | os.PathLike | None = None,
    progress: Callable[[int, int], None] | None = None,
    memo: Memo | None = None,
) -> Generator[int, None, pd.DataFrame]:
    """`run` round by round: yields after each, returns the record. Several runs in step may share a memo."""
    if rounds < 1 or eval_every < 1:
        raise ValueError(f"rounds={rounds}, eval_every={eval_every}: both must be at least 1")
    events = sorted(events, key=lambda event: event.at)
    about = {
        "algorithm": describe(algorithm), "events": [describe(e) for e in events], "rounds": rounds, "seed": seed,
        "eval_every": eval_every, "clients": len(fed), "numbers": model.size, "version": fedclust.__version__,
    }  # fmt: skip
    path = Path(checkpoint) if checkpoint is not None else None
    algorithm = algorithm.guarded(memo)
    keep_freed_memory()
    if path is not None and path.exists():
        state, book, done = restore(path, about)
    else:
        book, done = Book(), 0
        try:
            state = algorithm.init(model.init(seed).to(fed.x.dtype), fed, seed)
        except FloatingPointError as error:
            raise FloatingPointError(f"before round 0: {error}") from error
    saved = time.monotonic()
    for t in range(rounds):
        for event in events:
            if event.at == t:
                fed = event(fed, seed)
        if t < done:  # a resumed run walks through the events only
            continue
        joined: dict[str, Any] = {}
        served = state  # kept as it was: the round is all or nothing
        try:
            if (known := len(state.labels)) < len(fed):
                if algorithm.trains_newcomers(state):  # the joining round costs data traffic, time and privacy too
                    came = (torch.arange(len(fed)) >= known).float()
                    n = float(came.sum())
                    size = model.size * state.models.element_size()
                    joined = {"down": n, "up": n, "extra": n, "bytes": 2 * n * size, "trained": came}
                served = algorithm.admit(state, fed, seed)
            new, info = algorithm.step(served, fed, seed, t)
            check_finite(new.models.sum(1).isfinite()[new.labels], fed.ids)
        except BaseException as error:
            if path is not None and t > done:
                save(path, about, state, book, t)
            if isinstance(error, FloatingPointError):
                error.args = (f"round {t}: {error}",)
                error.record = book.frame(algorithm, seed, about)  # type: ignore[attr-defined]
            raise
        state = new
        book.note(t, joined, fed, state.labels)
        book.note(t, info, fed, state.labels)
        if t % eval_every == 0 or t == rounds - 1:
            accuracy, loss = evaluate(model, state.models, state.labels, fed)
            book.note(t, {"accuracy": accuracy, "loss": loss, **clustering(state.labels, fed.group)}, fed, state.labels)
        if progress is not None:
            progress(t + 1, rounds)
        if path is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
            save(path, about, state, book, t + 1)
            saved = time.monotonic()
        yield t
    spent = getattr(algorithm.train, "spent", None)
    if callable(spent):  # privacy: what each client's trainings cost it in the end
        trained = book.total("trained", fed)
        book.note(rounds - 1, {"epsilon": spent(trained, fed)}, fed, state.labels)
    return book.frame(algorithm, seed, about)


def keep_freed_memory(large: bool = False) -> None:
    """Memory that one round frees is kept for the next, that of one federation too if blocks are kept that are `large`:
    it is the C library's habit to give it back, and a tenth of the time went into getting its pages again."""
    with suppress(AttributeError, OSError):  # not glibc
        for option, size in (KEPT | LARGE if large else KEPT).items():
            ctypes.CDLL(None).mallopt(option, size)


def finish(playing: Generator[int, None, pd.DataFrame]) -> pd.DataFrame:
    """The record at the end of all rounds."""
    while True:
        try:
            next(playing)
        except StopIteration as end:
            return end.value


class Book:
    """The record while it is written: blocks of columns, joined at the end."""

    def __init__(self, blocks: list[tuple[int, str, list, list, list, list]] | None = None):
        self.blocks = blocks if blocks is not None else []

    def note(self, t: int, info: dict[str, Any], fed: Federation, labels: Tensor) -> None:
        for metric, value in info.items():
            if isinstance(value, Tensor) and value.ndim:
                self.blocks.append(
                    (t, metric, fed.ids.tolist(), fed.group.tolist(), labels.tolist(), value.double().tolist())
                )
            else:
                self.blocks.append((t, metric, [-1], [-1], [-1], [float(value)]))

    def total(self, metric: str, fed: Federation) -> Tensor:
        """Sum of a client metric over the rounds, (N,)."""
        sums = dict.fromkeys(fed.ids.tolist(), 0.0)
        for _, name, clients, _, _, values in self.blocks:
            if name == metric:
                for client, value in zip(clients, values, strict=True):
                    sums[client] += value
        return torch.tensor(list(sums.values()))

    def frame(self, algorithm: Method, seed: int, about: dict[str, Any]) -> pd.DataFrame:
        columns: dict[str, list] = {name: [] for name in COLUMNS}
        for t, metric, *lists in self.blocks:
            n = len(lists[0])
            for name, values in zip(COLUMNS, ([t] * n, *lists[:3], [metric] * n, lists[3]), strict=True):
                columns[name] += values
        record = pd.DataFrame(columns)
        record.insert(0, "algorithm", about["algorithm"]["name"])
        record.insert(1, "seed", seed)
        record = record.astype({"algorithm": "category", "metric": "category"})
        record.attrs.update(about)
        return record


def describe(thing: Any) -> Any:
    """A plain description that reads the same in every process: names and settings, no addresses."""
    if isinstance(thing, Federation):
        return {"name": "Federation", "clients": thing.ids.tolist()}
    if isinstance(thing, Model):
        return {"name": "Model", "shape": list(thing.shape), "classes": thing.classes, "numbers": thing.size}
    if is_dataclass(thing) and not isinstance(thing, type):
        return {"name": type(thing).__name__, **{f.name: describe(getattr(thing, f.name)) for f in fields(thing)}}
    if isinstance(thing, (list, tuple)):
        return [describe(item) for item in thing]
    if isinstance(thing, (str, int, float, bool)) or thing is None:
        return thing
    return getattr(thing, "__qualname__", None) or " ".join(repr(thing).split())


def save(path: Path, about: dict[str, Any], state: State, book: Book, done: int) -> None:
    """Everything a resumed run needs, written aside and moved into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    torch.save({"about": repr(about), "done": done, "state": tuple(state), "blocks": book.blocks}, aside)
    os.replace(aside, path)


def restore(path: Path, about: dict[str, Any]) -> tuple[State, Book, int]:
    try:
        saved = torch.load(path, weights_only=True)
        mine, state, book, done = (
            saved["about"] == repr(about),
            State(*saved["state"]),
            Book(saved["blocks"]),
            saved["done"],
        )
    except Exception as error:
        raise ValueError(
            f"checkpoint {path} cannot be read ({type(error).__name__}): delete it to start again"
        ) from error
    if not mine:
        raise ValueError(f"checkpoint {path} belongs to another run: delete it or give another path")
    return state, book, done
