"""Whole files, plain or compressed with gzip or xz, into memory that has a limit."""

from __future__ import annotations

import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from contextual_dropout_lab.data.data_error import DataError

__all__ = ["read_whole"]

GZIP_MAGIC, XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\0"

CHUNK = 2**20

#: Memory that the xz decoder may take for its dictionary: twice the 64 MiB that the highest preset of xz, -9, writes.
XZ_MEMORY = 2**27


def read_whole(path: str | os.PathLike[str], limit: int) -> bytearray:
    """The content of a file, decompressed if its first bytes, not its name, say that it is compressed.

    Args:
        path: the file.
        limit: the bytes that the content may have; no more than that is ever decompressed.

    Returns:
        The content.

    Raises:
        DataError: the file is missing, damaged, truncated, or holds more than ``limit``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "some.xz")
        ...     _ = path.write_bytes(lzma.compress(b"twelve bytes"))
        ...     read_whole(path, limit=12)
        bytearray(b'twelve bytes')
    """
    path, content = Path(path), bytearray()
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    with path.open("rb") as file:
        for chunk in _chunks(file, path):
            content += chunk
            if len(content) > limit:
                raise DataError(f"{path} holds more than {limit} bytes: expected at most that; is it another file?")
    return content


def _chunks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    start = file.read(len(XZ_MAGIC))
    file.seek(0)
    try:
        if start == XZ_MAGIC:
            yield from _xz(file, path)
        elif start.startswith(GZIP_MAGIC):
            yield from _gzip(file, path)
        else:
            while chunk := file.read(CHUNK):
                yield chunk
    except (lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path} cannot be decompressed ({error}): it is damaged, get it again") from error


def _xz(file: BinaryIO, path: Path) -> Iterator[bytes]:
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
    while not stream.eof:
        yield stream.decompress(_more(file, path) if stream.needs_input else b"", CHUNK)
    _ended(stream.unused_data, file, path)


def _gzip(file: BinaryIO, path: Path) -> Iterator[bytes]:
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    while not stream.eof:
        yield stream.decompress(stream.unconsumed_tail or _more(file, path), CHUNK)
    _ended(stream.unused_data, file, path)


def _more(file: BinaryIO, path: Path) -> bytes:
    if chunk := file.read(CHUNK):
        return chunk
    raise DataError(f"{path} ends within its compressed stream: the file is truncated, get it again")


def _ended(unused: bytes, file: BinaryIO, path: Path) -> None:
    if unused or file.read(1):
        raise DataError(f"{path} has bytes after its compressed stream: expected one stream only; compress it again")
