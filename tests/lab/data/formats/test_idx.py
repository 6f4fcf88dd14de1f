from __future__ import annotations

import contextlib
import gzip
import struct
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from contextual_dropout_lab.data import DataError, read_idx
from contextual_dropout_lab.data.formats import idx
from tests.lab.data.files import CODES, idx_bytes

ARRAYS = st.sampled_from(sorted(CODES)).flatmap(
    lambda name: arrays.arrays(name, arrays.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=4))
)
MEGABYTE = 2**20


def read(content: bytes) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some-idx")
        path.write_bytes(content)
        return read_idx(path)


def header(code: int, *shape: int) -> bytes:
    return bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


@settings(deadline=None)
@given(ARRAYS, st.booleans())
def test_what_was_written_is_read(array: npt.NDArray[np.generic], compressed: bool) -> None:
    content = idx_bytes(array)
    tensor = read(gzip.compress(content, mtime=0) if compressed else content)
    assert tensor.shape == array.shape
    assert tensor.numpy().dtype == array.dtype
    assert tensor.numpy().tobytes() == array.tobytes()  # NaNs too


@settings(deadline=None)
@given(ARRAYS, st.booleans(), st.data())
def test_every_truncation_is_an_error(array: npt.NDArray[np.generic], compressed: bool, data: st.DataObject) -> None:
    content = gzip.compress(idx_bytes(array), mtime=0) if compressed else idx_bytes(array)
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(DataError, match="some-idx"):
        read(content[:cut])


@settings(max_examples=300, deadline=None)
@given(ARRAYS, st.booleans(), st.booleans(), st.data())
def test_mutated_files_raise_data_errors_only(
    array: npt.NDArray[np.generic], inside: bool, outside: bool, data: st.DataObject
) -> None:
    def mutated(content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        return bytes(changed)

    content = mutated(idx_bytes(array)) if inside else idx_bytes(array)
    if outside:
        content = mutated(gzip.compress(content, mtime=0))
    with contextlib.suppress(DataError):
        assert read(content).nbytes <= 2**20  # a valid file after all


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"\0\0", b"\0\0\x08\x01", b"\x1f\x8b\x08\0"]))
def test_arbitrary_bytes_raise_data_errors_only(rest: bytes, start: bytes) -> None:
    with contextlib.suppress(DataError):
        read(start + rest)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"begins with the bytes \(none\)"),
        (b"<!DOCTYPE html>", "begins with the bytes 3c 21 44 4f: expected an idx file"),
        (header(0x0A, 1) + b"x", "items of type 0a: expected one of 08, 09, 0b, 0c, 0d, 0e"),
        (bytes([0, 0, 8, 0]), "has 0 dimensions: expected 1 to 32"),
        (header(0x08, *[1] * 33) + b"x", "has 33 dimensions"),
        (header(0x08, 1, 2)[:-1], "ends within its header, after 11 bytes"),
        (header(0x08, 3) + b"ab", r"is 10 bytes long: expected 11 for the shape \(3,\) of uint8"),
        (header(0x08, 3) + b"abcd", "is 12 bytes long: expected 11"),
        (gzip.compress(header(0x08, 3) + b"ab", mtime=0), "holds 2 bytes after its header: expected 3"),
        (gzip.compress(header(0x08, 3) + b"abcd", mtime=0), "holds more than 3 bytes after its header"),
        (gzip.compress(header(0x08, 1) + b"a", mtime=0)[:-1], "ends within its gzip stream"),
        (gzip.compress(header(0x08, 1) + b"a", mtime=0) + b"more", "has bytes after its gzip stream"),
    ],
)
def test_the_error_says_what_was_found_and_expected(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(content)


def test_a_wrong_checksum_in_a_gzip_file_is_noticed() -> None:
    content = bytearray(gzip.compress(header(0x08, 2) + b"ab", mtime=0))
    content[-8] ^= 1
    with pytest.raises(DataError, match="not a sound gzip file"):
        read(bytes(content))


def test_a_missing_file_or_a_folder_is_a_data_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match="is not a file"):
            read_idx(path)


def peak_of_refusal(content: bytes, message: str) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            read(content)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("shape", [(4_000_000_000, 28, 28), (4_000_000_000,), (2**32 - 1,) * 32, (0, *[2**32 - 1] * 8)])
def test_a_header_that_declares_too_much_reserves_nothing(pack: type[bytes], shape: tuple[int, ...]) -> None:
    assert peak_of_refusal(pack(header(0x08, *shape) + b"abc"), "expected at most 1073741824") < MEGABYTE


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_lie_below_the_limit_reserves_nothing_either(pack: type[bytes]) -> None:
    assert peak_of_refusal(pack(header(0x0E, 2**27) + b"abc"), "truncated") < 2 * MEGABYTE


def test_a_gzip_bomb_is_not_inflated() -> None:
    bomb = gzip.compress(header(0x08, 1000) + bytes(100 * MEGABYTE))
    assert peak_of_refusal(bomb, "holds more than 1000") < 2 * MEGABYTE


def test_not_a_byte_more_than_declared_is_inflated(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(header(0x08, 10) + bytes(1000)))
    with path.open("rb") as file:
        inflated = idx._inflated(file, path)
        assert [len(inflated(size)) for size in (8, 10, 1)] == [8, 10, 1]


def test_the_tensor_can_be_written_to() -> None:
    tensor = read(header(0x08, 2) + b"ab")
    tensor += 1
    assert tensor.tolist() == [98, 99]
