"""Data of one's own under a name: trials can ask for them, in every process."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedclust.checks import require
from fedclust.datasets.dataset import Dataset, images
from fedclust.datasets.registry import SPECS, cache_file
from fedclust.paths import write

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def from_arrays(
    name: str, x: Any, y: Any, x_test: Any = None, y_test: Any = None, classes: Sequence[str] = ()
) -> Dataset:
    """Keep a data set as `name`, for ``load(name)`` and ``{"data": {"name": name}}`` in trials.

    Images are (n, c, h, w) or (n, h, w), uint8; labels count from 0. Without a test half, let the
    partitioner divide each client's images: ``{"name": name, "pooled": True}``.
    """
    new = name not in (*SPECS, "glyphs") and usable(name)
    require(new, f"name={name!r}: must be new, of letters, digits and _, e.g. 'my_faces'")
    x = images("x", x)
    if x_test is None and y_test is None:
        x_test, y_test = x[:0], []
    made = Dataset(name, x, y, x_test, y_test, classes, f"registered as {name}")
    there, file = find(name), cache_file(f"own/{name}")
    if there is None:
        keep(made, file)
        return made
    same = (there.sha256, there.classes) == (made.sha256, made.classes)
    require(same, f"{name!r} has other content: use another name, or delete {file}")
    return made


def from_folder(name: str, folder: str | Path) -> Dataset:
    """Pictures in ``<folder>/train/<class>/`` and ``<folder>/test/<class>/``, kept as `name`."""
    train, test = Path(folder) / "train", Path(folder) / "test"
    classes = sorted(place.name for place in train.glob("*") if place.is_dir())
    files = [
        [
            (file, label)
            for label, kind in enumerate(classes)
            for file in sorted((half / kind).glob("*"))
            if file.suffix.lower() in SUFFIXES
        ]
        for half in (train, test)
    ]
    n, both = len(files[0]), files[0] + files[1]
    require(n, f"{folder}: has no pictures in train/<class>/; make a folder per class")
    x, y = pictures([file for file, _ in both]), np.array([label for _, label in both])
    return from_arrays(name, x[:n], y[:n], x[n:], y[n:], classes)


def pictures(files: Sequence[Path]) -> np.ndarray:
    """(n, 1, h, w), or (n, 3, h, w) if any has colours."""
    from PIL import Image

    opened = []
    for file in files:
        try:
            with Image.open(file) as picture:
                opened.append(picture.convert("L" if picture.mode in ("1", "L") else "RGB"))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise ValueError(f"{file}: is no picture that can be read; remove it") from error
        size, first = opened[-1].size, opened[0].size
        require(size == first, f"{file}: has size {size}, must have that of the first, {first}")
    mode = "RGB" if any(picture.mode == "RGB" for picture in opened) else "L"
    arrays = [np.atleast_3d(np.asarray(picture.convert(mode))) for picture in opened]
    return np.stack(arrays).transpose(0, 3, 1, 2)


def usable(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z]\w{0,59}", name) is not None


def find(name: str) -> Dataset | None:
    """What was kept under this name; its content is checked."""
    file = cache_file(f"own/{name}")
    if not usable(name) or not file.exists():
        return None
    try:
        kept = torch.load(file, mmap=True, weights_only=True)
        x, y, x_test, y_test = kept["arrays"]
        made = Dataset(name, x, y, x_test, y_test, kept["classes"], f"registered as {name}")
        require(made.sha256 == kept["sha256"], "content and hash differ")
    except Exception as error:  # a damaged file can make the reader say anything
        raise OSError(f"{file} is damaged: delete it, and register {name!r} again") from error
    return made


def keep(data: Dataset, file: Path) -> None:
    arrays = [half.contiguous() for half in (data.x, data.y, data.x_test, data.y_test)]
    kept = {"arrays": arrays, "classes": data.classes, "sha256": data.sha256}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, lambda part: torch.save(kept, part))
    except OSError as error:
        remedy = "let XDG_CACHE_HOME name another folder"
        raise OSError(f"cannot write to {file.parent} ({error}): {remedy}") from error
