"""Many runs, each done once."""

from fedclust.experiments.sweeps import TrialsFailed, sweep
from fedclust.experiments.trial import Trial, alter

__all__ = ["Trial", "TrialsFailed", "alter", "sweep"]
