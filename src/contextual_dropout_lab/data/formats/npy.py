"""Arrays in numpy's npy format, from untrusted files: their shape is known before they take memory."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from contextual_dropout_lab.data.data_error import DataError

__all__ = ["Header", "read_header", "read_items"]

#: Headers of more characters are refused; those of plain arrays have fewer than 200.
MAX_HEADER = 1000

#: Arrays that declare more bytes are refused too: 1 PiB, as nothing has. The file bounds what is really read.
MAX_BYTES = 2**50


@dataclass(frozen=True)
class Header:
    """The header of an npy file: shape, type and order of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    column_major: bool

    @property
    def nbytes(self) -> int:
        """The size of the items in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes], name: str) -> Header:
    """The header of an npy file; the stream is at the items afterwards.

    Arrays of Python objects are refused, for reading them would run code of the file.

    Raises:
        DataError: it is not the header of an array of numbers.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> np.save(file, np.zeros((2, 3), np.float32))
        >>> _ = file.seek(0)
        >>> header = read_header(file, "zeros.npy")
        >>> header.shape, header.nbytes, read_items(file, header, "zeros.npy").shape
        ((2, 3), 24, (2, 3))
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of files that Python 2 wrote
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, column_major, dtype = read(stream, max_header_size=MAX_HEADER)
    except Exception as error:  # numpy evaluates the header as Python literals: whatever that raises
        raise DataError(f"{name} is not a sound npy file ({error}): expected one; get it again") from error
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which could run code and are refused: save it as numbers")
    if dtype.kind not in "biuf" or any(type(side) is not int or side < 0 for side in shape):
        raise DataError(f"{name} declares the shape {shape} of {dtype}: expected numbers; get it again")
    # An empty side makes the items zero bytes but not the strides: it counts as one here.
    if math.prod(max(side, 1) for side in shape) * dtype.itemsize > MAX_BYTES:
        raise DataError(f"{name} declares the shape {shape} of {dtype}: expected at most {MAX_BYTES} bytes")
    return Header(shape, dtype, column_major)


def read_items(stream: IO[bytes], header: Header, name: str) -> npt.NDArray[np.generic]:
    """The items after a header that has been looked at: no more bytes are read than it declares, but one.

    Raises:
        DataError: there are fewer bytes, or more.
    """
    content = stream.read(header.nbytes + 1)
    if len(content) != header.nbytes:
        found = f"{len(content)} bytes" if len(content) < header.nbytes else f"more than {header.nbytes} bytes"
        raise DataError(f"{name} has {found} of items: expected {header.nbytes} for {header.shape}; get it again")
    items = np.frombuffer(content, header.dtype)
    return items.reshape(header.shape, order="F" if header.column_major else "C")
