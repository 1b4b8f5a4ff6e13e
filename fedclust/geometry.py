"""The papers' geometry of models and updates, for all pairs at once, from Gram matrices."""

from typing import Literal, get_args

import torch
from torch import Tensor

from fedclust.checks import checked

Kind = Literal["complete", "divergence", "euclidean", "cosine"]
KINDS = get_args(Kind)
SLICE = 2048  # numbers of a model at a time: double precision copies that stay small
NOISE = 1e-13  # relative, of a squared distance: what rounding leaves of equal rows
ZERO = torch.zeros(())


def cosine(vectors: Tensor, others: Tensor | None = None) -> Tensor:
    """Cosine similarity of each row with each row, or with each row of `others` (OCFL Eq. 1).

    A null vector's is 0 to everything.
    """
    others = vectors if others is None else others
    unit, units = (v / v.norm(dim=1, keepdim=True).clamp_min(1e-30) for v in (vectors, others))
    return (unit @ units.mT).clamp(-1, 1)  # (n, P) -> (n, m)


def gaps(ends: Tensor) -> Tensor:
    """Euclidean distances of all pairs of rows; 0 for rows that differ only by rounding.

    In double precision: clusters drift far apart while their members differ by little, and
    |a|^2 + |b|^2 - 2 <a, b> would lose what is small. It costs twice a single precision product.
    """
    gram = sum((part @ part.mT for part in map(centred, ends.split(SLICE, 1))), ZERO)  # (n, n)
    squared, scale = squares(gram), gram.diagonal()[:, None] + gram.diagonal()
    return torch.where(squared <= NOISE * scale, 0, squared).sqrt().fill_diagonal_(0).to(ends)


def centred(rows: Tensor) -> Tensor:
    """Double precision, around the mean row: models differ less from each other than from 0."""
    rows = rows.double()
    return rows - rows.mean(0)


def divergence(starts: Tensor, ends: Tensor, of: Tensor | None = None) -> Tensor:
    """omega of all pairs of updates (DCFL Eq. 1), in [-1, 1]; 0 if both ends coincide."""
    return pairs(starts, ends, of)[1].to(ends)


def pairs(starts: Tensor, ends: Tensor, of: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """|BD| and omega of all pairs, (n, n) each.

    With AB = ends - starts of one client and CD of the other, |AB| cos(alpha) = <AB, B - D> / |BD|
    and |CD| cos(beta) = <CD, D - B> / |BD|. Hence omega = <AB - CD, B - D> / (|BD| (|AB| + |CD|)),
    and no angle is needed. B - D = (A - C) + (AB - CD) makes both |BD|^2 and that product sums of
    products of updates and starts. So the updates, which are small, are squared alone, however far
    apart the starts are; and the starts, one per cluster, are few.
    """
    of = torch.arange(len(ends)) if of is None else of
    own = cross = start = ZERO
    for s, e in zip(starts.split(SLICE, 1), ends.split(SLICE, 1), strict=True):
        update, s = e - s[of], centred(s)
        own = own + (update @ update.mT).double()  # (n, n)  <AB, CD>, in single precision
        cross = cross + update.double() @ s.mT  # (n, K)  <AB, C>
        start = start + s @ s.mT  # (K, K)  <A, C>
    apart = squares(start)[of][:, of]  # (n, n)  |A - C|^2
    turned, cross = squares(own), cross[:, of]  # (n, n)  |AB - CD|^2
    mine = cross.diagonal()
    both = mine[:, None] + mine - cross - cross.mT  # <A - C, AB - CD>
    along, squared = both + turned, apart + 2 * both + turned  # <AB - CD, B - D>, |BD|^2
    length = own.diagonal().sqrt()
    scale = own.diagonal()[:, None] + own.diagonal() + apart
    noise = max(8 * torch.finfo(ends.dtype).eps, NOISE)  # of equal ends
    gap = torch.where(squared <= noise * scale, 0, squared).sqrt().fill_diagonal_(0)
    total = gap * (length[:, None] + length)
    return gap, torch.where(total == 0, 0, along / total).clamp(-1, 1)  # Eq. 1


def squares(gram: Tensor) -> Tensor:
    """|a - b|^2 of all pairs from all <a, b>."""
    return gram.diagonal()[:, None] + gram.diagonal() - 2 * gram


@checked
def distance(
    starts: Tensor, ends: Tensor, kind: Kind = "complete", of: Tensor | None = None
) -> Tensor:
    """Distances between all pairs of updates, (n, n), symmetric with a zero diagonal.

    "complete" is DCFL's |BD| e^(2 omega) (Eq. 2), "divergence" its factor alone as omega + 1 (omega
    itself may be negative), "euclidean" |BD|, "cosine" 1 - cos of the updates. Client i went from
    starts[of[i]] to ends[i]; without `of` each has a start of its own.
    """
    if kind == "euclidean":
        return gaps(ends)
    if kind == "cosine":
        return (1 - cosine(ends - (starts if of is None else starts[of]))).fill_diagonal_(0)
    gap, omega = pairs(starts, ends, of)
    if kind == "divergence":
        return (omega + 1).fill_diagonal_(0).to(ends)
    return (gap * torch.exp(2 * omega)).to(ends)  # Eq. 2


def dunn(distances: Tensor, labels: Tensor) -> float:
    """Smallest distance between clusters over the largest within one (DCFL Eq. 3).

    It is nan for one cluster and inf if every cluster is one client.

    >>> apart = torch.tensor([[0.0, 1.0, 6.0], [1.0, 0.0, 8.0], [6.0, 8.0, 0.0]])
    >>> dunn(apart, torch.tensor([0, 0, 1]))
    6.0
    """
    together = labels[:, None] == labels  # (n, n)
    if together.all():
        return float("nan")
    between, within = distances[~together].min(), distances[together].max()
    return float(between / within) if within > 0 else float("inf")
