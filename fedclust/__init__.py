"""fedclust: five papers on clustered federated learning, replicated; and the thin library underneath."""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclust import (
        algorithms,
        datasets,
        experiments,
        geometry,
        metrics,
        models,
        papers,
        partition,
        plots,
        privacy,
        report,
        rng,
        scenario,
        studies,
    )
    from fedclust.datasets import Dataset
    from fedclust.experiments import Trial, sweep
    from fedclust.federation import Federation
    from fedclust.models import Model
    from fedclust.privacy import DPSGD, UpdateNoise
    from fedclust.scenario import Drift, Join
    from fedclust.simulation import run
    from fedclust.training import LocalSGD

__all__ = [
    "DPSGD", "Dataset", "Drift", "Federation", "Join", "LocalSGD", "Model", "Trial", "UpdateNoise", "algorithms",
    "datasets", "experiments", "geometry", "metrics", "models", "papers", "partition", "plots", "privacy", "report",
    "rng", "run", "scenario", "studies", "sweep",
]  # fmt: skip

_HOMES = {
    "DPSGD": "privacy", "Dataset": "datasets", "Drift": "scenario", "Federation": "federation", "Join": "scenario",
    "LocalSGD": "training", "Model": "models", "Trial": "experiments", "UpdateNoise": "privacy", "run": "simulation",
    "sweep": "experiments",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Everything is imported when it is first asked for: the command line need not wait for torch to print its help."""
    if name not in __all__:
        raise AttributeError(f"module 'fedclust' has no attribute {name!r}")
    home = import_module(f"fedclust.{_HOMES.get(name, name)}")
    return getattr(home, name) if name in _HOMES else home


def __dir__() -> list[str]:
    return sorted(__all__)
