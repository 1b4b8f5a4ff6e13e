"""fedclust: five papers on clustered federated learning, replicated; and the thin library underneath."""

__version__ = "0.1.0"

from fedclust import (
    algorithms,
    datasets,
    experiments,
    geometry,
    metrics,
    models,
    papers,
    partition,
    privacy,
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
    "datasets", "experiments", "geometry", "metrics", "models", "papers", "partition", "privacy", "rng", "run",
    "scenario", "studies", "sweep",
]  # fmt: skip
