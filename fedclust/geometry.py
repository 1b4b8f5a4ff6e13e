"""The geometry of models and updates: the papers' shared equations, each once, for all pairs at once.

Everything comes from Gram matrices: n clients with P parameters cost one (n, P) x (P, n) product and no pair loop.
"""

import torch
from torch import Tensor

KINDS = ("complete", "divergence", "euclidean", "cosine")


def cosine(vectors: Tensor) -> Tensor:
    """Cosine similarity of all pairs of rows; a null vector has similarity 0 to everything (OCFL Eq. 1)."""
    return cosine_to(vectors, vectors)  # (n, P) -> (n, n)


def cosine_to(vectors: Tensor, others: Tensor) -> Tensor:
    """Cosine similarity of each row with each row of `others`."""
    unit, units = (v / v.norm(dim=1, keepdim=True).clamp_min(1e-30) for v in (vectors, others))
    return (unit @ units.mT).clamp(-1, 1)  # (n, P) -> (n, m)


def gaps(ends: Tensor) -> Tensor:
    """Euclidean distances of all pairs of rows, from the Gram matrix of the centred rows.

    Centred, because models differ by little from each other and by much from the origin: what is squared must be small.
    """
    centred = ends - ends.mean(0)
    gram = (centred @ centred.mT).double()  # (n, P) -> (n, n)
    squares = gram.diagonal()
    squared = squares[:, None] + squares - 2 * gram
    noise = 1e-6 * (squares[:, None] + squares)  # below what single precision can tell apart: the ends coincide
    return torch.where(squared > noise, squared, 0).sqrt().fill_diagonal_(0).to(ends)


def divergence(starts: Tensor, ends: Tensor) -> Tensor:
    """omega of all pairs of updates (DCFL Eq. 1), in [-1, 1]; 0 where both ends coincide.

    With AB = ends - starts of one client and CD of the other, |AB| cos(alpha) = <AB, B - D> / |BD| and
    |CD| cos(beta) = <CD, D - B> / |BD|, hence omega = <AB - CD, B - D> / (|BD| (|AB| + |CD|)): no angle is needed.
    """
    updates = ends - starts
    cross = (updates @ (ends - ends.mean(0)).mT).double()  # (n, n)  <AB_i, B_j>
    own = cross.diagonal()
    along = own[:, None] - cross - cross.mT + own  # <AB_i - AB_j, B_i - B_j>
    length = updates.norm(dim=1).double()
    scale = gaps(ends).double() * (length[:, None] + length)
    return torch.where(scale > 0, along / scale.clamp_min(1e-300), 0).clamp(-1, 1).to(ends)


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
    omega = divergence(starts, ends)
    if kind == "divergence":
        return (omega + 1).fill_diagonal_(0)
    return gaps(ends) * torch.exp(2 * omega)  # Eq. 2


def dunn(distances: Tensor, labels: Tensor) -> float:
    """Smallest distance between clusters over the largest within one (DCFL Eq. 3).

    One cluster has no distance between: nan. All singletons have none within: inf.
    """
    together = labels[:, None] == labels  # (n, n)
    if together.all():
        return float("nan")
    between, within = distances[~together].min(), distances[together].max()
    return float(between / within) if within > 0 else float("inf")
