"""A trial: one run, described by plain values."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedclust.paths import digest, short

NEEDED = {"data", "partition", "model", "train", "method", "rounds"}  # of a trial that trains
SETTINGS = NEEDED | {"eval_every", "events", "split_seed", "until"}
NAMED = {"data": "name", "partition": "kind", "model": "kind", "method": "kind"}
PAIRS = {"start": "join_every", "drift_from": "drift_every"}  # events come with both or neither
COLUMNS = ("algorithm", "seed", "round", "client", "group", "cluster", "metric", "value")
DEEPEST = 10  # levels of settings within settings
LARGEST = 2**63


@dataclass(frozen=True)
class Trial:
    """One run, described by plain values. `label` and `tags` only name it in tables and plots.

    >>> data = {"data": {"name": "glyphs", "n": 100}, "partition": {"kind": "iid", "clients": 4}}
    >>> model = {"model": {"kind": "mlp", "hidden": [8]}, "train": {"lr": 0.1}}
    >>> settings = {**data, **model, "method": {"kind": "FedAvg"}, "rounds": 2}
    >>> Trial(settings, seed=0, label="FedAvg").identity == Trial(settings, seed=0).identity
    True
    """

    settings: dict[str, Any]
    seed: int
    label: str = ""
    tags: dict[str, Any] = field(default_factory=dict)
    task: str = "train"

    def __post_init__(self) -> None:
        for name in ("label", "task"):
            if not isinstance(value := getattr(self, name), str):
                raise ValueError(f"{name}={short(value)}: must be text")
        for name in ("settings", "tags"):
            object.__setattr__(self, name, plain(getattr(self, name), name))
            if not isinstance(value := getattr(self, name), dict):
                raise ValueError(f"{name}={short(value)}: must be a dictionary")
        if taken := sorted(set(COLUMNS) & self.tags.keys()):
            raise ValueError(f"tag {taken[0]!r} is a column of the record: take another name")
        for name, value in self.tags.items():
            if isinstance(value, (list, dict)):
                raise ValueError(f"tag {name!r}={short(value)}: must be one number or text")
        object.__setattr__(self, "seed", whole("seed", self.seed, 0))
        least_rounds = int(self.task == "train")
        for name, least in {"rounds": least_rounds, "eval_every": 1, "split_seed": 0}.items():
            if name in self.settings and (name == "rounds" or self.settings[name] is not None):
                whole(name, self.settings[name], least)
        for name, key in NAMED.items():
            part = self.settings.get(name, {key: ""})
            if not isinstance(part, dict) or not isinstance(part.get(key), str):
                raise ValueError(f"{name}={short(part)}: must be like {{{key!r}: ..., ...}}")
        if self.task == "train":
            self.check()

    def check(self) -> None:
        """The settings of a trial that trains."""
        only("settings", self.settings, SETTINGS)
        if missing := NEEDED - self.settings.keys():
            raise ValueError(f"settings of a trial: {', '.join(sorted(missing))} missing")
        train = dictionary("train", self.settings["train"])
        private = dictionary("privacy", train.get("privacy") or {"kind": ""})
        if not isinstance(private.get("kind"), str):
            raise ValueError(f"privacy={short(private)}: must be like {{'kind': ..., ...}}")
        if until := dictionary("until", self.settings.get("until") or {}):
            whole("until.after", until.get("after"), 1)
        events = dictionary("events", self.settings.get("events") or {})
        only("events", events, {*PAIRS, *PAIRS.values()})
        for name, value in events.items():
            whole(f"events.{name}", value, 0 if name in PAIRS else 1)
        for pair in PAIRS.items():
            if len(given := events.keys() & set(pair)) == 1:
                raise ValueError(f"events: {min(given)} also needs {pair[pair[0] in given]}")

    @property
    def identity(self) -> str:
        """What is run, whatever the code: a hash of task, settings and seed."""
        return digest([self.task, self.settings, self.seed])

    @property
    def name(self) -> str:
        """How messages call the trial."""
        return f"{self.label or self.task} seed {self.seed}"

    @property
    def rounds(self) -> int:
        """How long the trial is, compared with others."""
        usual = self.settings.get("rounds", self.settings.get("epochs", 1))
        return self.settings.get("until", {}).get("after", usual)


def plain(value: Any, name: str, depth: int = 0) -> Any:
    """A copy of plain values only: finite or infinite numbers, text, lists, dictionaries."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)) and (abs(value) < LARGEST or abs(value) == math.inf):
        return value
    if depth < DEEPEST and isinstance(value, (list, tuple)):
        return [plain(item, name, depth + 1) for item in value]
    if depth < DEEPEST and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{name}.{key}", depth + 1) for key, item in value.items()}
    raise ValueError(
        f"{name}={short(value)}: must be a number, text, a list, or a dictionary with text as keys"
    )


def only(what: str, given: dict[str, Any], known: set[str]) -> None:
    """Name what is not known."""
    if unknown := ", ".join(sorted(given.keys() - known)):
        allowed = ", ".join(sorted(known))
        raise ValueError(f"{what} of a trial: {unknown} not known; there are {allowed}")


def whole(name: str, value: Any, least: int) -> int:
    """A whole number that is not smaller."""
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < LARGEST:
        raise ValueError(f"{name}={short(value)}: must be a whole number of at least {least}")
    return value


def dictionary(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}={short(value)}: must be a dictionary of options")
    return value


def alter(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The settings with changes, as in ``alter(base, {"partition.samples": 500, "rounds": 30})``.

    >>> alter({"rounds": 5, "train": {"lr": 0.1}}, {"train.lr": 0.2})
    {'rounds': 5, 'train': {'lr': 0.2}}
    """
    changed = dict(settings)
    for path, value in changes.items():
        name, _, rest = path.partition(".")
        changed[name] = alter(changed.get(name, {}), {rest: value}) if rest else value
    return changed
