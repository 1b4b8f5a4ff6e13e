"""What private trainings cost: epsilons by Opacus' RDP accountant."""

import math
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedclust.checks import require
from fedclust.federation import Federation

Mechanism = tuple[float, float, int]  # noise multiplier, sampling rate, number of steps


def spent(trainings: Sequence[tuple[Any, Tensor]], fed: Federation) -> dict[str, Tensor]:
    """The epsilons that each client's calls of these trainers cost together, (N,) each.

    A trainer's `mechanisms` say what its calls are, for each way to count them.
    """
    found: dict[str, list[float]] = {}
    delta = trainings[0][0].delta
    for i, n in enumerate(fed.sizes.tolist()):
        each = [train.mechanisms(n, int(calls[i])) for train, calls in trainings]
        for name in each[0]:
            history = tuple(mechanisms[name] for mechanisms in each)
            found.setdefault(name, []).append(composed(history, delta))
    return {name: torch.tensor(values) for name, values in found.items()}


@cache
def composed(history: tuple[Mechanism, ...], delta: float) -> float:
    """The epsilon of several sampled Gaussian mechanisms on the same data."""
    history = tuple(mechanism for mechanism in history if mechanism[2])
    if not history or min(history)[0] < 1e-9:
        return math.inf if history else 0.0
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = list(history)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta))


def epsilon_of(multiplier: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon of these steps of one mechanism."""
    return composed(((multiplier, rate, steps),), delta)


@cache
def noise_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The noise multiplier that spends epsilon in this number of steps.

    >>> round(noise_for(epsilon=10.0, delta=1e-5, rate=0.1, steps=100), 1)
    0.9
    >>> noise_for(float("inf"), 1e-5, 0.1, 100)
    0.0
    """
    if math.isinf(epsilon):
        return 0.0
    from opacus.accountants.utils import get_noise_multiplier

    require(  # a search for what does not exist takes a minute
        epsilon >= 1 or epsilon_of(1e3, rate, steps, delta) < epsilon,
        f"epsilon={epsilon:g}: no noise is enough for {steps} steps at delta={delta:g}, "
        "give a larger epsilon or delta",
    )
    goal = {"target_epsilon": epsilon, "target_delta": delta, "sample_rate": rate, "steps": steps}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about orders at the end of its range, while it searches
        return get_noise_multiplier(**goal, accountant="rdp")
