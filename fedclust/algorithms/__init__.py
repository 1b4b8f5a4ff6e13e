"""One file per method family."""

from dataclasses import fields
from typing import Any

from fedclust.algorithms.base import Method, State, Trainer
from fedclust.algorithms.cafa import ABFA, CAFA, CBCC
from fedclust.algorithms.cfl import CFL
from fedclust.algorithms.controls import FineTuned, Oracle, Told
from fedclust.algorithms.dcfl import DCFL
from fedclust.algorithms.fedac import FedAC, FedACP
from fedclust.algorithms.fedavg import FedAvg, FedProx, LocalOnly
from fedclust.algorithms.ifca import IFCA
from fedclust.algorithms.joint import Joint
from fedclust.algorithms.ocfl import OCFL

__all__ = [
    "ABFA",
    "CAFA",
    "CBCC",
    "CFL",
    "DCFL",
    "IFCA",
    "OCFL",
    "FedAC",
    "FedACP",
    "FedAvg",
    "FedProx",
    "FineTuned",
    "Joint",
    "LocalOnly",
    "Method",
    "Oracle",
    "State",
    "Told",
    "Trainer",
    "catalogue",
]


def catalogue() -> list[dict[str, Any]]:
    """What `fedclust list` prints: every method's name, paper, and parameters with defaults."""
    named = [globals()[name] for name in __all__]
    methods = [kind for kind in named if isinstance(kind, type) and issubclass(kind, Method)]
    return [
        {
            "name": method.__name__,
            "paper": (method.__doc__ or "").splitlines()[0],
            "parameters": {
                field.name: field.default
                for field in fields(method)
                if field.init and field.name != "train"
            },
        }
        for method in methods
        if method is not Method
    ]
