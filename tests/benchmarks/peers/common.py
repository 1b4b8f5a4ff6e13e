"""What every peer's script shares: the work, the network as one writes it, and the one line it
prints.

A script is run by its own environment's python as ``with_<peer>.py work.npz settings.json``; `run` writes both files.
They need numpy only, and torch where the peer is a PyTorch library.
"""

import json
import sys
import time
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


class Work:
    """N clients' images x (N, M, c, h, w) and labels y (N, M); who takes part in each round; the
    initial parameters.
    """

    def __init__(self, data: str, settings: str):
        self.paths = data, settings
        self.settings: dict[str, Any] = json.loads(Path(settings).read_text())
        arrays = np.load(data)
        self.x, self.y, self.x_test, self.y_test = (
            arrays[name] for name in ("x", "y", "x_test", "y_test")
        )
        self.chosen = arrays["chosen"]  # (rounds, n)
        self.init = [
            arrays[f"init{i}"] for i in range(sum(name.startswith("init") for name in arrays.files))
        ]
        self.rounds, self.lr = self.settings["rounds"], self.settings["lr"]
        self.batch, self.epochs, self.momentum = (
            self.settings[name] for name in ("batch", "epochs", "momentum")
        )

    def plan(self, t: int, i: int) -> np.ndarray:
        """Sample positions of client i's steps in round t, (S, B): every sample once per epoch."""
        draw = np.random.default_rng([t, i])
        return np.concatenate(
            [draw.permutation(self.y.shape[1]).reshape(-1, self.batch) for _ in range(self.epochs)]
        )

    def net(self, values: list[np.ndarray] | None = None) -> Any:
        """The network in PyTorch's usual way: convolution, ReLU, pooling, linear layers."""
        import torch
        from torch import nn

        layers: list[nn.Module] = []
        channels, side = self.x.shape[2], self.x.shape[3]
        for i, (width, kernel) in enumerate(self.settings["convolutions"]):
            layers += [nn.Conv2d(channels, width, kernel), nn.ReLU()]
            channels, side = width, side - kernel + 1
            if self.settings["pool"][i]:
                layers.append(nn.MaxPool2d(2))
                side //= 2
        layers.append(nn.Flatten())
        widths = [channels * side * side, *self.settings["hidden"], self.settings["classes"]]
        for n_in, n_out in pairwise(widths):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        net = nn.Sequential(*layers[:-1])
        with torch.no_grad():
            for w, value in zip(
                net.parameters(), self.init if values is None else values, strict=True
            ):
                w.copy_(torch.as_tensor(value))
        return net

    @cached_property
    def tensors(self) -> tuple[Any, Any]:
        import torch

        return torch.from_numpy(self.x), torch.from_numpy(self.y)

    def accuracy(self, net: Any) -> float:
        import torch

        with torch.no_grad():
            parts = torch.from_numpy(self.x_test).split(1000)
            found = torch.cat([net.eval()(part).argmax(1) for part in parts]).numpy()
        return float((found == self.y_test).mean())

    def report(self, times: list[tuple[float, float]], accuracy: float, version: str) -> None:
        """`times`: the clock at the start and after every round."""
        wall, processor = np.diff(times, axis=0).T.tolist()
        found = {"wall": wall, "processor": processor, "accuracy": accuracy, "version": version}
        print("RESULT " + json.dumps(found), flush=True)


@lru_cache(maxsize=1)
def load(data: str, settings: str) -> Work:
    return Work(data, settings)


def start() -> Work:
    """The work of this script, from its command line."""
    work = load(*sys.argv[1:3])
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    return work


def clock() -> tuple[float, float]:
    """Seconds by the wall and of this process' own processor time."""
    return time.perf_counter(), time.process_time()
