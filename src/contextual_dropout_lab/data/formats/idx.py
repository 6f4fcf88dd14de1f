"""The idx format of the MNIST family, plain or gzip-compressed, from untrusted files.

====== ======== ==================================================================
bytes  type     meaning
====== ======== ==================================================================
2      zero     always 0
1      uint8    item type: 08 uint8, 09 int8, 0B int16, 0C int32, 0D float32, 0E float64
1      uint8    number of dimensions D
4 D    uint32   size of every dimension, big endian
rest   items    row-major, big endian
====== ======== ==================================================================

No more memory is taken than the file really holds, nor more than its header declares, nor more than :data:`MAX_BYTES`.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError

__all__ = ["MAX_BYTES", "read_idx"]

#: Files that declare more bytes of items than this are refused: 1 GiB, 22 times the images of MNIST.
MAX_BYTES = 2**30

#: numpy 1 has no arrays of more dimensions.
MAX_DIMENSIONS = 32

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 2**16

DTYPES: dict[int, npt.DTypeLike] = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

#: Gives between one and ``size`` bytes, none at the end only.
Read = Callable[[int], bytes]


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """Read an idx file; its first bytes, not its name, decide whether it is compressed.

    Args:
        path: the file.

    Returns:
        The tensor, in the shape and type that the header declares.

    Raises:
        DataError: the file is missing, damaged, truncated, too long, or declares more than :data:`MAX_BYTES`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels-idx1-ubyte")
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1]) + bytes([0, 0, 0, 3]) + bytes([5, 0, 4]))
        ...     read_idx(path)
        tensor([5, 0, 4], dtype=torch.uint8)
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is not a file: expected an idx file, plain or .gz")
    with path.open("rb") as file:
        compressed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        read = _inflated(file, path) if compressed else file.read
        dtype, shape = _header(read, path)
        declared = math.prod(shape) * dtype.itemsize
        header = 4 + 4 * len(shape)
        if not compressed and (actual := os.fstat(file.fileno()).st_size) != header + declared:
            raise _wrong_length(path, shape, dtype, header + declared, f"is {actual} bytes long")
        items = _at_most(read, declared + 1)
    if len(items) != declared:
        found = f"holds more than {declared}" if len(items) > declared else f"holds {len(items)}"
        raise _wrong_length(path, shape, dtype, declared, f"{found} bytes after its header")
    flat = np.frombuffer(items, dtype)
    return torch.from_numpy(flat.astype(dtype.newbyteorder("="), copy=False)).reshape(shape)


def _header(read: Read, path: Path) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    start = _at_most(read, 4)
    if len(start) < 4 or start[:2] != b"\0\0":
        raise DataError(
            f"{path} begins with the bytes {start.hex(' ') or '(none)'}: expected an idx file, which begins with "
            "00 00, its type and its number of dimensions; is it a web page or another format under this name?"
        )
    if start[2] not in DTYPES:
        known = ", ".join(f"{code:02x}" for code in DTYPES)
        raise DataError(f"{path} has items of type {start[2]:02x}: expected one of {known}; the file is damaged")
    if not 1 <= start[3] <= MAX_DIMENSIONS:
        raise DataError(f"{path} has {start[3]} dimensions: expected 1 to {MAX_DIMENSIONS}; the file is damaged")
    sizes = _at_most(read, 4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise DataError(f"{path} ends within its header, after {4 + len(sizes)} bytes: the file is truncated")
    dtype, shape = np.dtype(DTYPES[start[2]]), tuple(np.frombuffer(sizes, ">u4").tolist())
    # An empty dimension makes the items zero bytes but not the strides: it counts as one here.
    if (declared := math.prod(max(size, 1) for size in shape) * dtype.itemsize) > MAX_BYTES:
        raise DataError(
            f"{path} declares the shape {shape} of {dtype.name}, {declared} bytes: expected at most {MAX_BYTES} "
            "(contextual_dropout_lab.data.formats.idx.MAX_BYTES); the file is damaged, or split it"
        )
    return dtype, shape


def _wrong_length(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[np.generic], expected: int, found: str
) -> DataError:
    return DataError(
        f"{path} {found}: expected {expected} for the shape {shape} of {dtype.name} in its header; "
        "the file is truncated or damaged, get it again"
    )


def _at_most(read: Read, size: int) -> bytearray:
    """``size`` bytes or all that there are; grows with what arrives, so that a header cannot reserve memory."""
    items = bytearray()
    while len(items) < size and (chunk := read(min(CHUNK, size - len(items)))):
        items += chunk
    return items


def _inflated(file: BinaryIO, path: Path) -> Read:
    # Not gzip.open: it reads ahead, while zlib's max_length never inflates a byte more than was asked for.
    stream, pending = zlib.decompressobj(zlib.MAX_WBITS | 16), b""

    def read(size: int) -> bytes:
        nonlocal pending
        while not stream.eof:
            pending = pending or file.read(CHUNK)
            if not pending:
                raise DataError(f"{path} ends within its gzip stream: the file is truncated, get it again")
            try:
                items = stream.decompress(pending, size)
            except zlib.error as error:
                raise DataError(f"{path} is not a sound gzip file ({error}): it is damaged, get it again") from error
            pending = stream.unconsumed_tail
            if items:
                return items
        if stream.unused_data or file.read(1):
            raise DataError(f"{path} has bytes after its gzip stream: expected one stream only; compress it again")
        return b""

    return read
