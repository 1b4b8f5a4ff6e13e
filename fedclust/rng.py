"""Random streams: the only place where generators are made.

Every draw has a name, e.g. ``stream(seed, "batches", t, client_id)``. So results do not depend on
the order in which clients are visited, on the number of workers or on a resume, and methods
compared at one seed share split, initial model and batches.
"""

from hashlib import blake2b

import numpy as np
import torch


def key(seed: int, *names: str | int) -> int:
    """A 63-bit integer that depends on the seed and on every name.

    >>> key(0, "init") == key(0, "init"), key(0, "init") == key(1, "init")
    (True, False)
    >>> key(0, "a", 1) == key(0, "a1")
    False
    """
    parts = (int(seed), *(name if isinstance(name, str) else int(name) for name in names))
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def stream(seed: int, *names: str | int) -> torch.Generator:
    """A torch generator of its own for this seed and these names."""
    return torch.Generator().manual_seed(key(seed, *names))


def numpy_stream(seed: int, *names: str | int) -> np.random.Generator:
    """The same for code that wants numpy's distributions."""
    return np.random.default_rng(key(seed, *names))
