"""Writing files so that they are complete or absent."""

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

#: A glob for what killed processes leave behind of attempts to replace the file of this name.
LEFTOVERS = ".{name}.*.tmp"


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Write to the path given inside, which replaces ``path`` in one step at the end, or is removed on error.

    It is in a folder of its own: libraries put files of their own beside the one that they write, and a killed process
    leaves those behind under names that cannot be known.

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
    """Wait until the names in a folder are on the disk: a machine that loses power may otherwise forget them."""
    with suppress(OSError):  # Windows and some network file systems cannot do this
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, completely or not at all; the same tensors and metadata give the same bytes."""
    with replaced(path) as temporary:
        save_file(tensors, temporary, metadata)
        _order_metadata(temporary)
        temporary.chmod(temporary.parent.stat().st_mode & 0o666)  # like other files; by default only the owner may read


def _order_metadata(path: Path) -> None:
    """Sort the metadata in a file, which safetensors writes in random order."""
    with open(path, "rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        file.seek(8)
        file.write(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size))
