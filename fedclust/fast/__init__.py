"""An accelerator that can be switched off, and the only door to it: nothing else imports its files.

    supports, train       clients' local training, as `LocalSGD.loop` does it
    predicts, predict     a model's logits, as its module gives them
    chooses, choose       Joint's decisions, as `algorithms.joint` makes them
    noise, large_products for private training; for matrices that only PyTorch multiplies
    keep_freed_memory,    for processes that train
    keep_workers
    shared, side_by_side  for trials that begin alike: what they have in common is computed once
    files                 which of its files a training enters: they are part of a record's key

The doors are an allow-list. They name the classes, fields and values that compiled code
understands; anything else goes the plain way, on PyTorch alone. So does everything if
FEDCLUST_PLAIN=1 is set: then no compiler is even imported. Each file here says how it works, and is
tested against the plain way.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedclust.fast.sharing import Results as Results
from fedclust.fast.sharing import shared as shared
from fedclust.fast.sharing import side_by_side as side_by_side
from fedclust.fast.tuning import keep_freed_memory as keep_freed_memory
from fedclust.fast.tuning import keep_workers as keep_workers

if TYPE_CHECKING:
    from fedclust.algorithms.ifca import Batch
    from fedclust.algorithms.joint import Joint, Seen
    from fedclust.federation import Federation
    from fedclust.models import Model
    from fedclust.training import LocalSGD

ANY: Any = object()  # every value of a field is understood
LARGEST = 8  # the side of a convolution's kernel that fits into a vector

SGD = {
    "model": ANY, "lr": ANY, "epochs": ANY, "batch": ANY, "steps": ANY, "momentum": ANY,
    "weight_decay": ANY, "prox": ANY, "decay": ANY, "optimizer": ("sgd",), "augment": (None,),
    "backend": ("auto", "stacked"), "device": ("cpu",), "autocast": (False,),
}  # fmt: skip
PRIVACY = dict.fromkeys(("epsilon", "noise_multiplier", "delta", "clip", "participations"), ANY)
TRAINERS = {"fedclust.training.LocalSGD": SGD, "fedclust.privacy.DPSGD": SGD | PRIVACY}
JOINT = {
    "train": ANY, "k": ANY, "lam": ANY, "sign": ("descent", "printed"), "loss": ("mean", "sum"),
    "similarity": ("cosine", "euclidean"), "rescue": ANY, "inits": ANY,
}  # fmt: skip
CHOOSERS = {"fedclust.algorithms.joint.Joint": JOINT}


def plain() -> bool:
    """Whether FEDCLUST_PLAIN switches all of this off."""
    return os.environ.get("FEDCLUST_PLAIN", "") not in ("", "0")


def obstacle(thing: Any, understood: dict[str, dict[str, Any]]) -> str | None:
    """Why compiled code must not do the work of a trainer or a method; None if it may."""
    kind = name_of(thing)
    if plain():
        return "anything while FEDCLUST_PLAIN is set"
    if kind not in understood:
        return f"with a {kind}"
    for field in fields(thing):
        value, values = getattr(thing, field.name), understood[kind].get(field.name, ())
        if values is not ANY and value not in values:
            return f"with {field.name}={value!r}"
    return None


def name_of(thing: Any) -> str:
    """The exact class: a subclass may do anything."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def compilable(model: "Model") -> bool:
    """Whether the architecture is a perceptron or a small convolutional network."""
    known = name_of(model) == "fedclust.models.Model" and model.pool in ("each", "last")
    return known and bool(model.dense) and model.kernel <= LARGEST


def cannot_train(train: "LocalSGD") -> str | None:
    """Why compiled code must not train; None if it may."""
    if not compilable(train.model):
        return f"{train.model.name!r}, which is no perceptron, nor one on blocks of convolution"
    return obstacle(train, TRAINERS)


def fits(rows: Tensor) -> bool:
    """Whether these models are where and what compiled code reads."""
    return rows.device.type == "cpu" and rows.dtype in (torch.float32, torch.float64)


def supports(train: "LocalSGD", theta: Tensor) -> bool:
    return fits(theta) and cannot_train(train) is None


def train(
    train: "LocalSGD", theta: Tensor, fed: "Federation", clients: Tensor, seed: int, t: int
) -> Tensor:
    """What `supports` allows: received models (n, P) -> trained models (n, P)."""
    from fedclust.fast import training

    return training.train(train, theta, fed, clients, seed, t)


def predicts(model: "Model", row: Tensor) -> bool:
    return not plain() and compilable(model) and fits(row)


def predict(model: "Model", row: Tensor, x: Tensor) -> Tensor:
    """What `predicts` allows: a model (P,) and images (B, ...) -> logits (B, classes)."""
    from fedclust.fast import training

    return training.predict(model, row, x)


def chooses(method: "Joint", rows: Tensor) -> bool:
    able = obstacle(method, CHOOSERS) is None and compilable(method.train.model)
    return able and fits(rows)


def choose(method: "Joint", rows: Tensor, directions: Tensor | None, batch: "Batch") -> "Seen":
    """What `chooses` allows: models (K, P), their last updates (K, P) or None, and batches."""
    from fedclust.fast import choice

    return choice.choose(method, rows, directions, batch)


def noise(size: int, key: int, first: int = 0) -> Tensor:
    """Normal numbers by name: those of this key from place `first` on, (size,).

    The plain way takes the same random bits and the exact quantiles; the two differ by rounding.
    """
    if plain():
        from fedclust.fast import quantiles

        return quantiles.normal(size, key, first)
    from fedclust.fast import normal

    return normal.normal(size, key, first)


def large_products(like: Tensor, products: int) -> AbstractContextManager[None]:
    """Inside, large products of single precision take the processor's faster kernel."""
    if plain():
        return nullcontext()
    from fedclust.fast.matmul import fast_matmul

    return fast_matmul(like, products)


def files(model: str, method: str = "") -> set[str]:
    """The modules of this folder that a run enters, by the names of its model and its method."""
    found = {"fast"}  # without tuning and sharing: they change how long, never what
    if plain():
        return found | {"fast.quantiles"}
    if model not in ("mlp", "cnn"):
        return found | {"fast.matmul", "fast.normal", "fast.compiled"}
    found |= {"fast.training", "fast.compiled", "fast.perceptron", "fast.products", "fast.normal"}
    chooses = f"fedclust.algorithms.joint.{method}" in CHOOSERS
    if model == "cnn":
        found |= {"fast.convnet"}
    if model == "mlp" or chooses:
        found |= {"fast.candidates"}
    return found | ({"fast.choice"} if chooses else set())
