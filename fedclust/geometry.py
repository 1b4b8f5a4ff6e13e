"""The geometry of models and updates: the papers' shared equations, each once, for all pairs at once.

Everything comes from Gram matrices: n clients with P parameters cost one (n, P) x (P, n) product and no pair loop.
"""

import torch
from torch import Tensor

KINDS = ("complete", "divergence", "euclidean", "cosine")
SLICE = 2048  # numbers of a model at a time: double precision copies that stay small
ZERO = torch.zeros(())
NOISE = 1e-13  # relative, of a squared distance: what rounding leaves of equal rows


def cosine(vectors: Tensor) -> Tensor:
    """Cosine similarity of all pairs of rows; a null vector has similarity 0 to everything (OCFL Eq. 1)."""
    return cosine_to(vectors, vectors)  # (n, P) -> (n, n)


def cosine_to(vectors: Tensor, others: Tensor) -> Tensor:
    """Cosine similarity of each row with each row of `others`."""
    unit, units = (v / v.norm(dim=1, keepdim=True).clamp_min(1e-30) for v in (vectors, others))
    return (unit @ units.mT).clamp(-1, 1)  # (n, P) -> (n, m)


def gaps(ends: Tensor) -> Tensor:
    """Euclidean distances of all pairs of rows; 0 for rows closer than 3e-7 of their distance from the middle.

    In double precision: clusters drift far apart while their members differ by little, and |a|^2 + |b|^2 - 2 <a, b>
    would lose what is small. It costs twice a single precision product and is summed over slices of the rows.
    """
    gram = sum((part @ part.mT for part in map(centred, ends.split(SLICE, 1))), ZERO)  # (n, P) -> (n, n)
    squares = gram.diagonal()
    scale = squares[:, None] + squares
    squared = scale - 2 * gram
    return torch.where(squared <= NOISE * scale, 0, squared).sqrt().fill_diagonal_(0).to(ends)


def centred(rows: Tensor) -> Tensor:
    """Double precision, around the mean row: models differ by little from each other and by much from the origin."""
    rows = rows.double()
    return rows - rows.mean(0)


def divergence(starts: Tensor, ends: Tensor) -> Tensor:
    """omega of all pairs of updates (DCFL Eq. 1), in [-1, 1]; 0 where both ends coincide.

    With AB = ends - starts of one client and CD of the other, |AB| cos(alpha) = <AB, B - D> / |BD| and
    |CD| cos(beta) = <CD, D - B> / |BD|, hence omega = <AB - CD, B - D> / (|BD| (|AB| + |CD|)): no angle is needed.
    """
    return omega(starts, ends, gaps(ends))


def omega(starts: Tensor, ends: Tensor, gap: Tensor) -> Tensor:
    """Eq. 1 where the distances |BD| of the ends are known."""
    parts = zip(starts.split(SLICE, 1), ends.split(SLICE, 1), strict=True)
    cross = sum(((b.double() - a.double()) @ centred(b).mT for a, b in parts), ZERO)  # (n, n)  <AB_i, B_j>
    own = cross.diagonal()
    along = own[:, None] - cross - cross.mT + own  # <AB_i - AB_j, B_i - B_j>
    length = (ends - starts).norm(dim=1).double()
    scale = gap.double() * (length[:, None] + length)
    return torch.where(scale == 0, 0, along / scale).clamp(-1, 1).to(ends)  # Eq. 1


def distance(starts: Tensor, ends: Tensor, kind: str = "complete") -> Tensor:
    """Distances between all pairs of updates, (n, n), symmetric with a zero diagonal.

    "complete" is DCFL's |BD| e^(2 omega) (Eq. 2), "divergence" its factor alone as omega + 1 (omega itself may be
    negative), "euclidean" |BD|, "cosine" 1 - cos of the updates.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: the distances are {', '.join(KINDS)}")
    if kind == "euclidean":
        return gaps(ends)
    if kind == "cosine":
        return (1 - cosine(ends - starts)).fill_diagonal_(0)
    if kind == "divergence":
        return (divergence(starts, ends) + 1).fill_diagonal_(0)
    gap = gaps(ends)
    return gap * torch.exp(2 * omega(starts, ends, gap))  # Eq. 2


def dunn(distances: Tensor, labels: Tensor) -> float:
    """Smallest distance between clusters over the largest within one (DCFL Eq. 3).

    One cluster has no distance between: nan. All singletons have none within: inf.
    """
    together = labels[:, None] == labels  # (n, n)
    if together.all():
        return float("nan")
    between, within = distances[~together].min(), distances[together].max()
    return float(between / within) if within > 0 else float("inf")
