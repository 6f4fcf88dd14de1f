"""What ``torch.save`` wrote, from files that nobody has to trust: tensors and plain values, and no more than there is.

``torch.load(weights_only=True)`` runs no code of a file. But it does not look at checksums, inflates what is compressed
without a limit, and lets a pickle ask for a ``bytearray`` of any size; all of that is refused here beforehand.
"""

from __future__ import annotations

import mmap
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

__all__ = ["read_torch"]


def read_torch(path: str | os.PathLike[str]) -> Any:
    """The content of a file, on the CPU.

    Raises:
        Exception: of any kind; the caller says what was expected.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save({"a": torch.ones(2)}, f"{folder}/some.pt")
        ...     read_torch(f"{folder}/some.pt")
        {'a': tensor([1., 1.])}
    """
    path = Path(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"bytearray") >= 0:
            raise ValueError("it asks for memory of its own, a bytearray, which no tensor needs")
    if zipfile.is_zipfile(path):  # what torch wrote before version 1.6 is not
        _check_archive(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch warns of (a TorchScript archive), it refuses right after
        return torch.load(path, map_location="cpu", weights_only=True)


def _check_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len({member.filename for member in members}) != len(members):
            raise zipfile.BadZipFile("it has two parts of the same name")
        stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not stored or sum(member.file_size for member in members) > path.stat().st_size:
            raise zipfile.BadZipFile("its parts are compressed, or overlap, as torch never writes them")
        if damaged := archive.testzip():
            raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
