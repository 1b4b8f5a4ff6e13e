"""The record of a run: written round by round, kept in checkpoints, joined at the end."""

import io
import math
import os
import time
import warnings
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from fedclust.algorithms.base import State
from fedclust.checks import require
from fedclust.federation import Federation
from fedclust.models import Model
from fedclust.paths import write

CHECKPOINT_SECONDS = 20.0
COLUMNS = ("round", "client", "group", "cluster", "metric", "value")
Block = tuple[int, str, list, list, list, list]  # round, metric; clients, groups, clusters, values


class Record:
    """Blocks of rows, one for each round and metric, and what the run was about."""

    def __init__(self, about: dict[str, Any], blocks: list[Block] | None = None):
        self.about, self.blocks = about, blocks or []

    def note(self, t: int, info: dict[str, Any], fed: Federation, labels: Tensor) -> None:
        """Add round t's values: numbers of the server, or one number per client (N,)."""
        clients = fed.ids.tolist(), fed.group.tolist(), labels.tolist()
        for metric, value in info.items():
            if isinstance(value, Tensor) and value.ndim:
                self.blocks.append((t, metric, *clients, value.double().tolist()))
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

    def reached(self, goals: dict[str, float]) -> bool:
        """Whether the mean of every metric that has a goal has been that high in some round."""
        best = dict.fromkeys(goals.keys() - {"after"}, -math.inf)
        for _, name, _, _, _, values in self.blocks:
            if name in best:
                best[name] = max(best[name], sum(values) / len(values))
        return all(best[name] >= goals[name] for name in best)

    def frame(self) -> pd.DataFrame:
        """The tidy table, with what the run was about in its `attrs`."""
        columns: dict[str, list] = {name: [] for name in COLUMNS}
        for t, metric, clients, groups, clusters, values in self.blocks:
            n = len(values)
            lists: tuple[list, ...] = ([t] * n, clients, groups, clusters, [metric] * n, values)
            for name, column in zip(COLUMNS, lists, strict=True):
                columns[name] += column
        record = pd.DataFrame(columns)
        record.insert(0, "algorithm", self.about["algorithm"]["name"])
        record.insert(1, "seed", self.about["seed"])
        record = record.astype({"algorithm": "category", "metric": "category"})
        record.attrs.update(self.about)
        return record


class Checkpoint:
    """A file with everything that a stopped run needs to continue, and the one before it.

    A file begins with the hash of the rest. A damaged one is named and removed, never used.
    """

    def __init__(self, path: Path, about: dict[str, Any]):
        self.path, self.about, self.last = path, about, time.monotonic()
        self.before = path.with_suffix(".before")

    def due(self) -> bool:
        return time.monotonic() - self.last > CHECKPOINT_SECONDS

    def save(self, state: State, record: Record, done: int) -> None:
        saved = {"about": repr(self.about), "done": done, "state": tuple(state)}
        buffer = io.BytesIO()
        torch.save(saved | {"blocks": record.blocks}, buffer)
        content = buffer.getvalue()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            os.replace(self.path, self.before)
        write(self.path, sha256(content).digest() + content)
        self.last = time.monotonic()

    def restore(self) -> tuple[State, Record, int] | None:
        """State, record and number of rounds of the last whole checkpoint, if there is one."""
        for path in (self.path, self.before):
            try:
                return self.read(path)
            except FileNotFoundError:
                continue
            except Damaged as error:
                path.unlink()
                warnings.warn(f"checkpoint {path} is removed, {error}", stacklevel=2)
        return None

    def read(self, path: Path) -> tuple[State, Record, int]:
        content = path.read_bytes()
        if sha256(content[32:]).digest() != content[:32]:
            raise Damaged("its hash is another")
        saved = torch.load(io.BytesIO(content[32:]), weights_only=True)
        other = f"checkpoint {path} belongs to another run: delete it or give another path"
        require(saved["about"] == repr(self.about), other)
        state = State(*saved["state"])
        if not state.models[state.labels].isfinite().all():
            raise Damaged("its models are not finite")
        return state, Record(self.about, saved["blocks"]), saved["done"]


class Damaged(ValueError):
    """A checkpoint that must not be used."""


def describe(thing: Any) -> Any:
    """A plain description that is the same in every process: names and settings, no addresses."""
    if isinstance(thing, Federation):
        return {"name": "Federation", "clients": thing.ids.tolist()}
    if isinstance(thing, Model):
        shape = list(thing.shape)
        return {"name": "Model", "shape": shape, "classes": thing.classes, "numbers": thing.size}
    if is_dataclass(thing) and not isinstance(thing, type):
        values = {field.name: describe(getattr(thing, field.name)) for field in fields(thing)}
        return {"name": type(thing).__name__, **values}
    if isinstance(thing, (list, tuple)):
        return [describe(item) for item in thing]
    if isinstance(thing, (str, int, float, bool)) or thing is None:
        return thing
    return getattr(thing, "__qualname__", None) or " ".join(repr(thing).split())
