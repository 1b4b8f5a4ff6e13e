"""Many runs, each done once: what a trial is, what it runs, where its record is kept, how trials are spread."""

from fedclust.experiments.sweeps import TrialsFailed, sweep
from fedclust.experiments.trial import Trial, alter

__all__ = ["Trial", "TrialsFailed", "alter", "sweep"]
