"""DCFL's clients: labels divided by a Dirichlet distribution, images turned by angles."""

from dataclasses import replace

import numpy as np
import torch

from fedclust.assembly import assemble
from fedclust.checks import Count, Open, Positive, checked, require, whole
from fedclust.datasets import Dataset
from fedclust.federation import Federation
from fedclust.rng import numpy_stream, stream
from fedclust.rotation import black_pixels, turn

__all__ = ["dirichlet_rotated"]


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
