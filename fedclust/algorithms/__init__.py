"""One file per method family."""

from fedclust.algorithms.base import Method, State, Trainer
from fedclust.algorithms.fedavg import FedAvg, FedProx, LocalOnly

__all__ = ["FedAvg", "FedProx", "LocalOnly", "Method", "State", "Trainer"]
