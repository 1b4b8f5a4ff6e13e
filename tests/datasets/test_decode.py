import io
import os
import pickle
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from fedclust.datasets import decode

rng = np.random.default_rng(0)


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


# IDX


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.binary(min_size=125, max_size=125))
def test_idx_gives_back_what_was_written(shape, pixels):
    array = np.frombuffer(pixels, np.uint8)[: np.prod(shape)].reshape(shape)
    assert np.array_equal(decode.idx(idx(array), len(shape)), array)


@given(
    st.one_of(
        st.binary(max_size=60), st.binary(max_size=60).map(lambda tail: b"\0\0\x08\x03" + tail)
    )
)
@example(b"")
@example(b"\0\0\x08\x03" + b"\xff" * 12)  # promises 2**96 bytes
@example(idx(np.zeros((2, 3, 3), np.uint8))[:-1])
@example(idx(np.zeros((2, 3, 3), np.uint8)) + b"\0")
@example(idx(np.zeros((2, 3), np.uint8)))
def test_whatever_is_no_idx_file_is_a_clear_error(data):
    try:
        array = decode.idx(data, 3)
    except ValueError as error:
        assert "not an IDX file" in str(error) or "cut short or damaged" in str(error)
    else:
        assert idx(array) == data


def test_emnist_is_turned_upright():
    letter = np.array([[9, 0, 0], [9, 0, 0], [9, 9, 9]], np.uint8)  # an L
    x, y, x_test, y_test = decode.idx_turned(
        [idx(letter.T[None].copy()), idx(np.array([21], np.uint8))]
    )
    assert np.array_equal(x[0, 0], letter) and y.tolist() == [21]
    assert x_test.shape == (0, 1, 3, 3) and y_test.shape == (0,)


# CIFAR's three editions


def python2_pickle(y: np.ndarray, x: np.ndarray) -> bytes:
    """As Python 2 wrote them: {"batch_label": ..., "labels": [...], "data": array, ...}."""

    def text(word: bytes) -> bytes:
        return b"U" + bytes([len(word)]) + word

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0"
        + text(b"b")
        + b"tR(K\x01K\x02M\0\x0c\x86"
    )
    data = array + text(b"u1") + b"T" + struct.pack("<I", x.size) + x.tobytes() + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in y) + b"e"
    names = b"](" + text(b"a.png") + text(b"b.png") + b"e"
    body = text(b"batch_label") + text(b"training batch 1 of 5") + text(b"labels") + labels
    return b"\x80\x02}(" + body + text(b"data") + data + text(b"filenames") + names + b"u."


def test_cifar_batches():
    x = rng.integers(0, 256, (6, 2, 3, 32, 32), dtype=np.uint8)
    y = rng.integers(0, 10, (6, 2), dtype=np.uint8)
    decoded = decode.cifar_batches([python2_pickle(y[i], x[i]) for i in range(6)])
    wanted = x[:5].reshape(-1, 3, 32, 32), y[:5].ravel(), x[5], y[5]
    assert all(map(np.array_equal, decoded, wanted))


def test_cifar_pictures():
    sheet = np.zeros((10_000, 1024, 3), np.uint8)
    sheet[7, 33] = 1, 2, 3  # image 7, second line, second pixel
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "PNG", compress_level=1)
    x, y, x_test, y_test = decode.cifar_pictures([file.getvalue()] * 6 + [b"[6, 9]", b"[3]"])
    assert x.shape == (50_000, 3, 32, 32) and x_test.shape == (10_000, 3, 32, 32)
    assert (
        x[40_007, :, 1, 1].tolist() == x_test[7, :, 1, 1].tolist() == [1, 2, 3]
        and x_test.sum() == 6
    )
    assert y.tolist() == [6, 9] and y_test.tolist() == [3]
    small = io.BytesIO()
    Image.fromarray(sheet[:5]).save(small, "PNG")
    with pytest.raises(ValueError, match=r"RGB picture of \(1024, 5\)"):
        decode.cifar_pictures([small.getvalue()] * 8)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_a_pickle_is_never_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no list of labels"):
        decode.cifar_batches([pickle.dumps(Evil(), protocol=2)] * 6)
    assert not (tmp_path / "executed").exists()
