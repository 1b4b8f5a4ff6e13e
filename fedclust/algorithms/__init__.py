"""One file per method family."""

from dataclasses import fields
from typing import Any

from fedclust.algorithms.base import Method, State, Trainer
from fedclust.algorithms.cafa import ABFA, CAFA, CBCC
from fedclust.algorithms.cfl import CFL
from fedclust.algorithms.dcfl import DCFL
from fedclust.algorithms.fedac import FedAC, FedACP
from fedclust.algorithms.fedavg import FedAvg, FedProx, LocalOnly
from fedclust.algorithms.ifca import IFCA
from fedclust.algorithms.joint import Joint
from fedclust.algorithms.ocfl import OCFL
from fedclust.paths import from_parts

METHODS = (
    ABFA, CAFA, CBCC, CFL, DCFL, IFCA, OCFL, FedAC, FedACP, FedAvg, FedProx, Joint, LocalOnly,
)  # fmt: skip
PAPERS = dict.fromkeys(("FineTuned", "Oracle", "Told"), "compare")  # as in `partition`
__all__ = [*(method.__name__ for method in METHODS), *PAPERS]
__all__ += ["Method", "State", "Trainer", "catalogue"]
__getattr__, __dir__ = from_parts(__name__, PAPERS)


def catalogue() -> list[dict[str, Any]]:
    """What `fedclust list` prints: every method's name, paper, and parameters with defaults."""
    return [
        {
            "name": method.__name__,
            "paper": (method.__doc__ or "").splitlines()[0],
            "parameters": {
                f.name: f.default for f in fields(method) if f.init and f.name != "train"
            },
        }
        for method in (*METHODS, *map(__getattr__, PAPERS))
    ]
