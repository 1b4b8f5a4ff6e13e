"""What only DCFL uses: clients with label mixes and angles of their own, drift, noised updates."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedclust.accounting import Mechanism, spent
from fedclust.algorithms.base import Trainer
from fedclust.assembly import assemble
from fedclust.checks import Count, Number, Open, Positive, check_fields, checked, require, whole
from fedclust.datasets import Dataset
from fedclust.experiments.parts.rotation import black_pixels, turn
from fedclust.federation import Federation
from fedclust.models import Model
from fedclust.privacy import Delta, check_budget
from fedclust.rng import numpy_stream, stream

__all__ = ["Drift", "UpdateNoise", "dirichlet_rotated", "drifts"]


@checked
def dirichlet_rotated(
    data: Dataset,
    clients: Count,
    *,
    alpha: Positive = 1.0,  # 0.1 is very skewed, 100 nearly even
    samples: int = 1000,
    test_share: Open = 0.2,
    rotate: bool = True,
    seed: int = 0,
    limit: Count | None = None,
) -> Federation:
    """DCFL: a Dirichlet divides the labels, and each client turns its images by its own angle.

    The halves of the data are pooled and every client gets `samples` images, of which `test_share`
    are its test half. For each label a Dirichlet(alpha) draws the clients' shares. One client after
    another then draws its images among those still free, and each image weighs as much as the
    client's share of its label. While there is plenty of data that is the same as dividing all of
    them and keeping `samples` per client; when a client's labels run short it takes others. Angles
    are uniform in [0, 360). Every client is a group of its own.

    >>> from fedclust.datasets import load
    >>> fed = dirichlet_rotated(load("glyphs", n=400, n_test=100), clients=3, samples=50)
    >>> fed.x.shape, fed.x_test.shape, fed.angle.shape
    (torch.Size([3, 40, 1, 28, 28]), torch.Size([3, 10, 1, 28, 28]), torch.Size([3]))
    """
    whole("[2, inf)", samples=samples)
    data, rng = data.pooled(), numpy_stream(seed, "dirichlet_rotated")
    y, tests = data.y.numpy(), round(samples * test_share)
    require(
        0 < tests < samples,
        f"samples={samples}, test_share={test_share}: each half needs at least one sample",
    )
    require(
        clients <= len(y) // samples,
        f"clients={clients}, samples={samples}: {len(y)} images are enough for 1 to "
        f"{len(y) // samples} clients of this size; ask for fewer of either",
    )
    shares = rng.dirichlet(np.full(clients, alpha), len(data.classes)).T.clip(1e-100)
    free, lists = np.ones(len(y), bool), []
    for share in shares:  # (classes,) of one client
        wait = rng.exponential(size=len(y)) / share[y]
        mine = np.where(free, wait, np.inf).argsort()[:samples]  # shortest waits: a weighted draw
        lists.append(rng.permutation(mine))
        free[mine] = False
    train, test = [mine[tests:] for mine in lists], [mine[:tests] for mine in lists]
    pooled = replace(data, x_test=data.x, y_test=data.y)
    fed = assemble(pooled, train, test, np.arange(clients), seed, limit=limit)
    if not rotate:
        return fed
    angle = torch.rand(clients, generator=stream(seed, "angle")) * 360
    black = black_pixels(data.mean, data.std, clients)
    fed = replace(fed, upright=fed.x, upright_test=fed.x_test, angle=angle, black=black)
    return replace(fed, x=turn(fed.x, angle, black), x_test=turn(fed.x_test, angle, black))


@dataclass(frozen=True)
class Drift:
    """From round `at` on one client's images have a new angle in U[0, 360).

    `client` is an id; None takes one at random.
    """

    at: Number
    client: Number | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, fed: Federation, seed: int) -> Federation:
        draw, ids = stream(seed, "drift", self.at), fed.ids.tolist()
        if fed.upright is None or fed.angle is None or fed.black is None:
            raise ValueError("drift needs upright images: use dirichlet_rotated(rotate=True)")
        require(
            self.client is None or self.client in ids,
            f"client={self.client} is not there in round {self.at}: drift one of {ids}, or None",
        )
        angle = torch.rand(1, generator=draw) * 360
        drawn = int(torch.randint(len(ids), (), generator=draw))
        i = drawn if self.client is None else ids.index(self.client)
        new: dict[str, Any] = {"angle": fed.angle.index_fill(0, torch.tensor(i), float(angle))}
        for half, end in (("train", ""), ("test", "_test")):
            x, _, mask = fed.half(half)
            images, upright, real = x.clone(), getattr(fed, "upright" + end), mask[i]
            images[i][real] = turn(upright[None, i, real], angle, fed.black[None, i])[0]
            new["x" + end] = images
        return replace(fed, **new)


@checked
def drifts(start: Number, every: Count, rounds: Count) -> list[Drift]:
    """One random client every `every` rounds from round `start` on."""
    return [Drift(t) for t in range(start, rounds, every)]


@dataclass(frozen=True)
class UpdateNoise:
    """Clip a client's update to norm `clip` and add Gaussian noise (Wei et al. 2020, NbAFL).

    sigma = c * 2 clip / (m * epsilon) with c = sqrt(2 ln(1.25/delta)) and the client's number of
    samples m, `epsilon` for each round. The whole row is clipped and noised, batch norm statistics
    too: all of it is sent. epsilon = inf clips without noise.

    The analysis behind sigma holds for epsilon <= 1, and it takes the update for a mean over
    samples, of sensitivity 2 clip / m. But one sample can move a clipped update by 2 clip. The
    metric `epsilon` is an accountant's for this true sensitivity, `epsilon_if_mean_over_samples`
    that for the assumed one: 11.15 in one round where the formula says 10.
    """

    train: Trainer
    epsilon: float = math.inf
    delta: Delta = 1e-5
    clip: Positive = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_budget(self.epsilon)

    @property
    def model(self) -> Model:
        return self.train.model

    @property
    def multiplier(self) -> float:
        """The noise in units of the assumed sensitivity 2 clip / m."""
        return math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    def __call__(
        self, theta: Tensor, fed: Federation, clients: Tensor, seed: int, t: int
    ) -> Tensor:
        update = self.train(theta, fed, clients, seed, t) - theta
        update *= (self.clip / update.norm(dim=1, keepdim=True)).clamp_max(1)
        if math.isfinite(self.epsilon):
            sigma = self.multiplier * 2 * self.clip / fed.mask[clients].sum(1)  # (n,)
            ids = fed.ids[clients].tolist()
            for row, scale, i in zip(update, sigma.tolist(), ids, strict=True):
                noise = torch.randn(len(row), generator=stream(seed, "noise", t, i))
                row += scale * noise.to(row)
        return theta + update

    def mechanisms(self, n: int, calls: int) -> dict[str, Mechanism]:
        return {
            "epsilon": (self.multiplier / n, 1.0, calls),
            "epsilon_if_mean_over_samples": (self.multiplier, 1.0, calls),
        }

    def spent(self, calls: Tensor, fed: Federation) -> dict[str, Tensor]:
        """The composed epsilons of each client's rounds at `delta`, (N,) each."""
        return spent([(self, calls)], fed)
