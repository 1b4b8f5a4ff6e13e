"""One file per method family."""

from fedclust.algorithms.base import Method, State, Trainer
from fedclust.algorithms.cfl import CFL
from fedclust.algorithms.dcfl import DCFL
from fedclust.algorithms.fedavg import FedAvg, FedProx, LocalOnly
from fedclust.algorithms.ocfl import OCFL

__all__ = ["CFL", "DCFL", "OCFL", "FedAvg", "FedProx", "LocalOnly", "Method", "State", "Trainer"]
