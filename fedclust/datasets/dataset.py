"""Images and labels, checked once: everything that follows may rely on their shapes and types."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedclust.checks import require


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels in two halves, and their source.

    Arrays of NumPy are taken too, and grey images without an axis for the colour. `mean` and `std`
    are per channel: partitioners turn pixels into ``(x / 255 - mean) / std``. `stand_in` names the
    set that these data replace; figures and verdicts made with them say so.
    """

    name: str
    x: Tensor  # (n, c, h, w) uint8
    y: Tensor  # (n,) int64
    x_test: Tensor
    y_test: Tensor
    classes: Sequence[str] = ()  # or the labels themselves: "0", "1", ...
    source: str = "arrays"
    sha256: str = ""  # of the content
    stand_in: str | None = None
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        x, x_test = images("x", self.x), images("x_test", self.x_test)
        y, y_test = labels("y", self.y, len(x)), labels("y_test", self.y_test, len(x_test))
        shapes = f"{tuple(x.shape[1:])} and {tuple(x_test.shape[1:])}"
        one = x.shape[1:] == x_test.shape[1:]
        require(one, f"x and x_test: must be images of one shape, not of {shapes}")
        classes = tuple(self.classes) or named(y, y_test)
        for name, given in (("y", y), ("y_test", y_test)):
            if len(given) and (given.min() < 0 or given.max() >= len(classes)):
                run = f"{name}: labels run from {given.min()} to {given.max()}, must be from 0"
                raise ValueError(f"{run} to {len(classes) - 1}: there are {len(classes)} classes")
        checked = {"x": x, "y": y, "x_test": x_test, "y_test": y_test, "classes": classes}
        checked |= {name: scale(name, getattr(self, name), x.shape[1]) for name in ("mean", "std")}
        arrays = [half.numpy() for half in (x, y, x_test, y_test)]
        checked["sha256"] = self.sha256 or content_hash(arrays)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """(c, h, w) of one image."""
        return tuple(self.x.shape[1:])

    def scaled(self, mean: Sequence[float], std: Sequence[float]) -> "Dataset":
        """The same images, to be normalised with this mean and deviation per channel."""
        return replace(self, mean=mean, std=std)

    def shrunk(self, by: int) -> "Dataset":
        """Smaller images, each pixel the mean of `by` times `by`: for reduced runs."""
        if type(by) is not int or by < 1 or any(side % by for side in self.shape[1:]):
            raise ValueError(f"by={by!r}: must divide the sides of images of {self.shape}, e.g. 2")
        return replace(self, x=shrunk(self.x, by), x_test=shrunk(self.x_test, by))

    def pooled(self) -> "Dataset":
        """Both halves in one, for settings that divide each client's images themselves."""
        x, y = torch.cat([self.x, self.x_test]), torch.cat([self.y, self.y_test])
        return replace(self, x=x, y=y, x_test=x[:0], y_test=y[:0])


def shrunk(images: Tensor, by: int) -> Tensor:
    """Each pixel the mean of `by` times `by`: (n, c, h, w) -> (n, c, h / by, w / by).

    >>> shrunk(torch.tensor([[0, 1, 8, 8], [2, 4, 8, 9]], dtype=torch.uint8).view(1, 1, 2, 4), 2)
    tensor([[[[2, 8]]]], dtype=torch.uint8)
    """
    squares = images.unflatten(3, (-1, by)).unflatten(2, (-1, by))  # (n, c, h / by, by, w / by, by)
    return squares.sum((3, 5), dtype=torch.float32).div_(by**2).round_().byte()


def content_hash(arrays: Sequence[np.ndarray]) -> str:
    """The sha256 of shapes and bytes of x, y, x_test and y_test."""
    total = sha256()
    for array in arrays:
        total.update(repr(tuple(array.shape)).encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def tensor(name: str, given: Any) -> tuple[Tensor, str]:
    """On the processor, and the name of its type."""
    try:
        copied = np.array(given) if isinstance(given, np.ndarray) else given
        found = torch.as_tensor(copied).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(given).__name__
        raise ValueError(f"{name}: must be an array of numbers, not this {kind}") from error
    return found, str(found.dtype).removeprefix("torch.")


def images(name: str, given: Any) -> Tensor:
    """(n, c, h, w) uint8."""
    x, kind = tensor(name, given)
    remedy = "(255 * x).round()" if x.is_floating_point() else "x"
    use = f"use {remedy} as uint8, if that is what they are"
    require(kind == "uint8", f"{name}: pixels must be uint8, 0 to 255, not {kind}; {use}")
    axes = f"{name}: must be (n, channels, height, width), not {tuple(x.shape)}"
    x = x[:, None] if x.ndim == 3 else x
    require(x.ndim == 4 and 0 not in x.shape[1:], axes)
    last = x.shape[-1] in (1, 3) and x.shape[1] not in (1, 3)
    require(not last, f"{axes}: the colours come last, use x.transpose(0, 3, 1, 2)")
    return x


def labels(name: str, given: Any, count: int) -> Tensor:
    """(n,) int64, one for each image."""
    y, kind = tensor(name, given)
    shape, whole = tuple(y.shape), kind.startswith(("int", "uint")) or not len(y)
    require(y.ndim == 1, f"{name}: labels must be (n,), not {shape}; of one-hot rows use argmax(1)")
    one_each = f"{name}: must have one label for each of {count} images, not {len(y)}"
    require(len(y) == count, one_each)
    require(whole, f"{name}: labels must be whole numbers, not {kind}; use int64")
    return y.long()


def named(y: Tensor, y_test: Tensor) -> tuple[str, ...]:
    """Names of classes that have none: their labels, which count from 0."""
    found = torch.cat([y, y_test]).unique().tolist() or [0]
    begin = f"labels begin at {found[0]}, must begin at 0: subtract {found[0]}"
    require(found[0] == 0, begin)
    return tuple(map(str, range(found[-1] + 1 if len(y) + len(y_test) else 0)))


def scale(name: str, given: Any, channels: int) -> tuple[float, ...]:
    """Mean or deviation: one number, or one per channel."""
    numbers = tuple(given) if isinstance(given, Iterable) else ()
    finite = all(isinstance(v, Real) and isfinite(v) for v in numbers)
    fits = len(numbers) in (1, channels) and finite and (name == "mean" or min(numbers) > 0)
    how_many = "1 number" if channels == 1 else f"1 or {channels} numbers"
    wanted = f"a list of {how_many}{' above 0' * (name == 'std')}"
    require(fits, f"{name}={str(given)[:80]}: must be {wanted}, e.g. [0.5]")
    return numbers
