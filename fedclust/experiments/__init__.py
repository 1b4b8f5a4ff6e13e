"""Many runs, each done once: what a trial is, where its record is kept, and how trials are spread over processes."""

from fedclust.experiments.sweeps import Trial, TrialsFailed, alter, sweep

__all__ = ["Trial", "TrialsFailed", "alter", "sweep"]
