import hashlib

import numpy as np
import torch

from fedclust import rng


def test_key_is_the_hash_it_says_and_never_changes():
    digest = hashlib.blake2b(b"(0, 'init', 0)", digest_size=8).digest()
    assert rng.key(0, "init", 0) == int.from_bytes(digest, "little") >> 1
    assert (
        rng.key(0, "init", 0) == 5411017352171644398
    )  # pinned: records of other machines depend on it


def test_every_name_counts():
    keys = [
        rng.key(*names)
        for names in ((0,), (1,), (0, "a"), (0, "a", 1), (0, "a1"), (0, 1, "a"), (0, "a", "1"))
    ]
    assert len(set(keys)) == len(keys) and all(0 <= k < 2**63 for k in keys)
    assert rng.key(np.int64(3), "x", np.int64(4)) == rng.key(3, "x", 4)


def test_streams_are_independent_of_each_other_and_of_the_global_generator():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = torch.rand(5, generator=rng.stream(7, "batches", 2, 11))
    torch.rand(3, generator=rng.stream(7, "batches", 3, 11))
    again = torch.rand(5, generator=rng.stream(7, "batches", 2, 11))
    assert first.equal(again) and torch.get_rng_state().equal(before)
    assert not first.equal(torch.rand(5, generator=rng.stream(7, "batches", 2, 12)))


def test_numpy_stream():
    a, b = rng.numpy_stream(7, "angles"), rng.numpy_stream(7, "angles")
    assert (a.random(4) == b.random(4)).all()
    assert not (
        rng.numpy_stream(8, "angles").random(4) == rng.numpy_stream(7, "angles").random(4)
    ).any()
