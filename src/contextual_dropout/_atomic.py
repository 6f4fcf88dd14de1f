"""Files that are whole or not there."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

__all__ = ["LEFTOVERS", "replaced", "save_tensors"]

#: What killed processes leave of attempts to replace a file, as a glob; the name is the file's.
LEFTOVERS = ".{name}.*.tmp"


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Write to the path given inside; at the end it takes the place of ``path`` at once, or, on error, is removed.

    It is in a folder of its own: libraries put files of their own beside the one that they write, and a killed process
    leaves those behind under names that nobody could know.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replaced(Path(folder, "a.txt")) as temporary:
        ...         _ = temporary.write_text("whole")
        ...     [path.name for path in Path(folder).iterdir()]
        ['a.txt']
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    temporary = scratch / path.name
    try:
        scratch.mkdir()
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _settle(path.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _settle(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: a machine that loses power may forget them else."""
    with suppress(OSError):  # Windows opens no folders, and some file systems over a network have no such thing
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, all of it or nothing; the same tensors and metadata give the same bytes."""
    with replaced(path) as temporary:
        save_file(tensors, temporary, metadata)
        _order_metadata(temporary)
        temporary.chmod(temporary.parent.stat().st_mode & 0o666)  # as other files: safetensors' are for the owner only


def _order_metadata(path: Path) -> None:
    """Safetensors writes metadata in an order of chance."""
    with open(path, "rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        file.seek(8)
        file.write(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size))
