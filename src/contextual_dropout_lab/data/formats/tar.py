"""The files in a tar archive, read where they are: nothing is extracted, so no name can lead anywhere."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from itertools import islice

import numpy as np

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.compressed import read_whole

__all__ = ["MAX_BYTES", "read_members", "read_tar"]

#: Archives of more bytes than this, decompressed, are refused: 1 GiB; CIFAR takes about 0.2.
MAX_BYTES = 2**30

#: Archives of more files and folders are refused too; Tiny ImageNet has 120,609.
MAX_MEMBERS = 2**18

BLOCK = 512


def read_tar(path: str | os.PathLike[str]) -> dict[str, memoryview]:
    """All regular files of a tar archive, plain or compressed with gzip or xz; links and devices are left out.

    Args:
        path: the archive.

    Returns:
        From the name in the archive, without a leading ``./``, to the content, in the order of the archive. The
        contents are views of one buffer: they take no memory of their own.

    Raises:
        DataError: the archive is missing, damaged, truncated, of more than :data:`MAX_BYTES` or :data:`MAX_MEMBERS`,
            or has a file twice.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     archive = os.path.join(folder, "some.tar.gz")
        ...     with tarfile.open(archive, "w:gz") as tar:
        ...         tar.add(tarfile.__file__, "code/tarfile.py")
        ...     {name: bytes(content[:3]) for name, content in read_tar(archive).items()}
        {'code/tarfile.py': b'#!/'}
    """
    return read_members(path)[0]


def read_members(path: str | os.PathLike[str]) -> tuple[dict[str, memoryview], set[str]]:
    """The files as of :func:`read_tar`, and the names of the folders that have an entry of their own."""
    content = memoryview(read_whole(path, MAX_BYTES)).toreadonly()
    files, folders = dict[str, memoryview](), set[str]()
    for member in _members(content, path):
        if member.isdir():
            folders.add(member.name.removeprefix("./"))
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
            continue
        name = member.name.removeprefix("./")
        if name in files:
            raise DataError(f"{path} has {name} twice: expected once; pack it again")
        files[name] = content[member.offset_data : member.offset_data + member.size]
        if len(files[name]) != member.size:
            raise DataError(f"{path} ends within {name}: the archive is truncated, get it again")
    return files, folders


def _members(content: memoryview, path: str | os.PathLike[str]) -> list[tarfile.TarInfo]:
    try:
        with tarfile.open(fileobj=_View(content), mode="r:") as tar:
            members, end = list(islice(_forward(tar), MAX_MEMBERS + 1)), tar.offset
    except (tarfile.TarError, ValueError, ArithmeticError, LookupError, EOFError, RecursionError) as error:
        raise DataError(f"{path} is not a sound tar archive ({error}): expected one, get it again") from error
    if len(members) > MAX_MEMBERS:
        raise DataError(f"{path} has more than {MAX_MEMBERS} files and folders: expected at most that")
    # tarfile takes a damaged header for the end, which really is two blocks of zeros.
    rest = np.frombuffer(content, np.uint8)[end:]
    if len(rest) < BLOCK or rest.any():
        raise DataError(f"{path} is damaged or truncated after {len(members)} files: get it again")
    return members


def _forward(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members; from one of a negative size some versions of tarfile go back, and never come to an end."""
    while (member := tar.next()) is not None:
        if tar.offset < member.offset_data:
            raise tarfile.ReadError(f"{member.name} ends before it begins")
        yield member


class _View(io.RawIOBase):
    """Bytes as a file; ``io.BytesIO`` would copy them."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._at = content, 0

    def read(self, size: int = -1) -> bytes:
        end = len(self._content) if size < 0 else self._at + size
        found = bytes(self._content[self._at : end])
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._content)}[whence]
        if self._at < 0:
            raise ValueError(f"negative position {self._at}")
        return self._at

    def tell(self) -> int:
        return self._at
