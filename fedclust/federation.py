"""Federation: the clients' data, stacked on axis 0, and the ground truth for scoring."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedclust.checks import one_of, require

ENDS = {"train": "", "val": "_val", "test": "_test"}  # of the names of a half's tensors


@dataclass(frozen=True, eq=False)
class Federation:
    """N clients with up to M samples each; shorter clients are padded, `mask` is where samples are.

    `group` is the ground truth for scoring: a method must never read it. `ids` are stable names:
    random streams and records use them, so positions may change when clients join.

    >>> one = (torch.zeros(3, 1, 2, 2), torch.tensor([0, 1, 1]))  # three 2 x 2 images, labels
    >>> other = (torch.ones(1, 1, 2, 2), torch.tensor([0]))
    >>> halves = {"train": [one, other], "test": [one, other]}
    >>> fed = Federation.stack(halves, group=torch.tensor([0, 1]), classes=2)
    >>> fed.sizes.tolist(), fed.mask.tolist()
    ([3, 1], [[True, True, True], [True, False, False]])
    """

    x: Tensor  # (N, M, c, h, w) float
    y: Tensor  # (N, M) int64
    mask: Tensor  # (N, M) bool
    x_test: Tensor
    y_test: Tensor
    mask_test: Tensor
    group: Tensor  # (N,) int64
    ids: Tensor  # (N,) int64
    classes: int  # outputs a model needs
    x_val: Tensor | None = None
    y_val: Tensor | None = None
    mask_val: Tensor | None = None
    upright: Tensor | None = None  # the images before rotation, if clients' images are rotated
    upright_test: Tensor | None = None
    angle: Tensor | None = None  # (N,) degrees
    black: Tensor | None = None  # (N, c) a pixel of 0 after normalisation: corners of turned images

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sizes(self) -> Tensor:
        """Training samples per client, (N,)."""
        return self.mask.sum(1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.x.shape[2:])

    @property
    def ends(self) -> list[str]:
        """Ends of the names of the halves that are there."""
        return [end for end in ENDS.values() if getattr(self, "x" + end) is not None]

    def half(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """(x, y, mask) of the "train", "val" or "test" half."""
        one_of(ENDS, half=name)
        x, y, mask = (getattr(self, part + ENDS[name]) for part in ("x", "y", "mask"))
        if x is None:
            raise ValueError("there is no validation half: ask the partitioner (validation=0.2)")
        return x, y, mask

    def class_counts(self, half: str = "train") -> Tensor:
        """Samples per client and class, (N, classes)."""
        _, y, mask = self.half(half)
        counts = torch.zeros(len(self), self.classes, dtype=torch.long)
        return counts.scatter_add_(1, y.cpu(), mask.cpu().long())

    def take(self, index: Tensor | Sequence[int]) -> "Federation":
        """The clients at these positions, with their names."""
        index = torch.as_tensor(index)
        return self.mapped(lambda value: value[index])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "Federation":
        """The same with every tensor changed in one way."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: change(v) for name, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **changed)  # type: ignore[arg-type]

    def join(self, other: "Federation") -> "Federation":
        """These clients and then the others, padded to the longer."""
        require(
            self.classes == other.classes and self.shape == other.shape,
            f"cannot join clients with {other.classes} classes of {other.shape} to clients with "
            f"{self.classes} classes of {self.shape}: partition both from one data set",
        )
        shared = sorted(set(self.ids.tolist()) & set(other.ids.tolist()))
        require(not shared, f"client ids {shared} exist already: newcomers need new ids")
        joined: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            a, b = getattr(self, name), getattr(other, name)
            both = (a is None) == (b is None)
            require(both, f"only one side of the join has {name!r}: partition both alike")
            if isinstance(a, Tensor):
                longest = max(a.shape[1], b.shape[1]) if a.ndim > 1 else None
                joined[name] = torch.cat([lengthen(a, longest), lengthen(b, longest)])
        return replace(self, **joined)

    def to(self, to: torch.dtype | torch.device | str) -> "Federation":
        """On another device, or with images in another float type."""
        every = not isinstance(to, torch.dtype)
        return self.mapped(lambda v: v.to(to) if every or v.is_floating_point() else v)

    @classmethod
    def stack(
        cls,
        halves: dict[str, list[tuple[Tensor, Tensor]]],
        *,
        group: Tensor,
        classes: int,
        ids: Tensor | None = None,
        **rest: Any,
    ) -> "Federation":
        """From ``{"train": [(x, y) per client], "test": ..., "val": ...}``."""
        parts: dict[str, Any] = {}
        for name, clients in halves.items():
            longest = max(1, max(len(y) for _, y in clients))
            for part, values in zip(("x", "y"), zip(*clients, strict=True), strict=True):
                longer = [lengthen(value[None], longest) for value in values]
                parts[part + ENDS[name]] = torch.cat(longer)
            real = [torch.arange(longest) < len(y) for _, y in clients]
            parts["mask" + ENDS[name]] = torch.stack(real)
        ids = torch.arange(len(halves["train"])) if ids is None else ids
        return cls(**parts, group=group, ids=ids, classes=classes, **rest)


def lengthen(x: Tensor, length: int | None) -> Tensor:
    """Zeros at the end of axis 1 up to `length`."""
    if length is None or x.shape[1] == length:
        return x
    return pad(x, [0, 0] * (x.ndim - 2) + [0, length - x.shape[1]])
