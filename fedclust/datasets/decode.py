"""From the bytes of published files to arrays. Nothing is unpickled."""

import json
import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Arrays = tuple[Bytes, Bytes, Bytes, Bytes]  # x, y, x_test, y_test


@dataclass(frozen=True)
class Edition:
    """One published form of a data set: the names of its files, and how arrays are made of them."""

    files: Sequence[str]
    decode: Callable[[list[bytes]], Arrays]


def idx(data: bytes, axes: int) -> Bytes:
    """The array in an IDX file of unsigned bytes."""
    head = 4 + 4 * axes
    if len(data) < head or data[:4] != bytes([0, 0, 8, axes]):
        begin = data[:4].hex() or "nothing"
        raise ValueError(f"not an IDX file of bytes with {axes} axes: it begins with {begin}")
    shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, head, 4)]
    rest = len(data) - head
    if rest != np.prod(shape, dtype=object):
        raise ValueError(f"an IDX file of shape {shape} has {rest} bytes: cut short or damaged")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def idx_halves(parts: list[bytes]) -> Arrays:
    """Images and labels of the training half, then of the test half."""
    x, y, x_test, y_test = map(idx, parts, (3, 1, 3, 1))
    return x[:, None], y, x_test[:, None], y_test


def idx_turned(parts: list[bytes]) -> Arrays:
    """EMNIST's images lie mirrored on their side; the one half that is used becomes `x`."""
    x, y = idx(parts[0], 3).transpose(0, 2, 1)[:, None], idx(parts[1], 1)
    return x, y, x[:0], y[:0]


def cifar_batches(parts: list[bytes]) -> Arrays:
    """Python 2 pickled CIFAR's batches: the opcodes are listed here, never executed."""
    x, y = [], []
    for part in parts:
        key, labels, pixels = "", bytearray(), b""
        for opcode, value, _ in pickletools.genops(part):
            if isinstance(value, str) and "STRING" in opcode.name:
                key = value
                pixels = max(pixels, value.encode("latin-1"), key=len)  # by far the longest string
            elif isinstance(value, int) and opcode.name == "BININT1" and key == "labels":
                labels.append(value)
        if not labels or len(pixels) != 3072 * len(labels):
            raise ValueError("no list of labels and images: not one of CIFAR-10's batches")
        x.append(np.frombuffer(pixels, np.uint8).reshape(-1, 3, 32, 32))
        y.append(np.frombuffer(labels, np.uint8))
    return np.concatenate(x[:5]), np.concatenate(y[:5]), x[5], y[5]


def cifar_pictures(parts: list[bytes]) -> Arrays:
    """Six pictures, each row an image with its pixels in reading order; two lists of labels."""
    from PIL import Image

    x = []
    for part in parts[:6]:
        picture = Image.open(BytesIO(part), formats=["PNG"])
        if picture.mode != "RGB" or picture.size != (1024, 10_000):
            raise ValueError(
                f"a {picture.mode} picture of {picture.size}, not RGB of (1024, 10000)"
            )
        x.append(np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    y, y_test = (np.array(json.loads(part), np.uint8) for part in parts[6:])
    return np.concatenate(x[:5]), y, x[5], y_test


HALVES = ("train", "t10k")
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
LISTS = ("train_lables.json", "test_lables.json")  # spelt so by their publisher
CIFAR = Edition(BATCHES, cifar_batches)
CIFAR_PICTURES = Edition((*(f"{name}.png" for name in BATCHES), *LISTS), cifar_pictures)
KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
IDX = Edition([f"{half}-{kind}" for half in HALVES for kind in KINDS], idx_halves)
EMNIST = Edition([f"emnist-bymerge-test-{kind}" for kind in KINDS], idx_turned)
