"""A trial: one run, described by plain values."""

from dataclasses import dataclass, field
from typing import Any

from fedclust.paths import digest

NEEDED = {"data", "partition", "model", "method", "rounds"}  # settings of a trial that trains
SETTINGS = NEEDED | {"train", "eval_every", "events", "split_seed"}
EVENTS = {"start", "join_every", "drift_from", "drift_every"}


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
        if self.task != "train":
            return
        only("settings", self.settings, SETTINGS)
        only("events", self.settings.get("events") or {}, EVENTS)
        if missing := NEEDED - self.settings.keys():
            raise ValueError(f"settings of a trial: {', '.join(sorted(missing))} missing")

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
        """How long the trial is beside others."""
        return self.settings.get("rounds", 1)


def only(what: str, given: dict[str, Any], known: set[str]) -> None:
    """Name what is not known."""
    if unknown := ", ".join(sorted(given.keys() - known)):
        allowed = ", ".join(sorted(known))
        raise ValueError(f"{what} of a trial: {unknown} not known; there are {allowed}")


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
