"""fedclust: five papers on clustered federated learning, replicated; and the thin library
underneath.

The rooms: the core (modules of this folder, `algorithms/`, `datasets/`) is the loop and what goes
into it, `experiments/` runs it many times, `report/` makes pages of the records, `cli.py` is the
command line. `fast/` is an accelerator that can be switched off (FEDCLUST_PLAIN=1). Imports point
only upwards in this order.
"""

__version__ = "0.2.0"

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from typing import Any

__all__ = [
    "DPSGD", "Dataset", "Drift", "Federation", "Join", "LocalSGD", "Model", "Trial", "UpdateNoise",
    "algorithms", "datasets", "experiments", "geometry", "metrics", "models", "papers", "partition",
    "plots", "privacy", "readings", "report", "rng", "run", "scenario", "sweep",
]  # fmt: skip
_HOMES = {
    "DPSGD": "privacy", "Dataset": "datasets", "Drift": "scenario", "Federation": "federation",
    "Join": "scenario", "LocalSGD": "training", "Model": "models", "Trial": "experiments",
    "UpdateNoise": "privacy", "run": "simulation", "sweep": "experiments",
}  # fmt: skip
_MOVED = {  # modules of version 0.1 and where they are now
    "glyphs": "datasets.glyphs", "sources": "datasets.download", "studies": "experiments.build",
    "papers": "report.papers", "plots": "report.plots", "readings": "report.readings",
    "splits": "report.drawings.fedac", "notebooks": "report.notebooks",
    "scoreboard": "report.scoreboard", "site": "report.site",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Everything is imported when it is first asked for: help need not wait for torch."""
    if name in _MOVED:
        return import_module(f"fedclust.{_MOVED[name]}")
    if name not in __all__:
        raise AttributeError(f"module 'fedclust' has no attribute {name!r}")
    home = import_module(f"fedclust.{_HOMES.get(name, name)}")
    return getattr(home, name) if name in _HOMES else home


def __dir__() -> list[str]:
    return sorted(__all__)


class _OldNames(MetaPathFinder, Loader):
    """`import fedclust.papers` and the like give the module at its new place."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return spec_from_loader(name, self) if name.removeprefix("fedclust.") in _MOVED else None

    def create_module(self, spec: Any) -> Any:
        module = import_module(f"fedclust.{_MOVED[spec.name.removeprefix('fedclust.')]}")
        self.spec = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self.spec  # importing under the old name has replaced it


sys.meta_path.append(_OldNames())
