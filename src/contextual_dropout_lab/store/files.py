"""Files that are whole or not there, and locks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from contextual_dropout._atomic import LEFTOVERS, replaced, save_tensors
from contextual_dropout._torch_files import read_torch
from contextual_dropout_lab.errors import Busy, ExperimentError

__all__ = [
    "hide_from_git",
    "load_tensors",
    "locked",
    "read_json",
    "remove_leftovers",
    "replace_file",
    "sha256_of",
    "write_json",
    "write_tensors",
]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Write to the path given inside; at the end it takes the place of ``path`` at once, or, on error, is removed.

    Raises:
        ExperimentError: it cannot be written, and why. What was at ``path`` is still there.
    """
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as temporary:
            yield temporary


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of attempts to replace ``path``; the caller excludes other writers."""
    for leftover in path.parent.glob(LEFTOVERS.format(name=path.name)):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Explain a full disk, or a folder that cannot be written to."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        told = re.search(r"os error (\d+)", str(error))  # by safetensors, in words only
        number = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
        todo = "make room there" if number in _FULL else "see to it that files can be written there"
        raise ExperimentError(
            f"{path} cannot be written ({os.strerror(number) if number else error}): {todo}, and start again; nothing "
            "that was written before is lost"
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON, all of it or nothing."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, all of it or nothing; the same tensors and metadata give the same bytes."""
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(path, tensors, metadata)


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is named."""
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:  # neither is always a JSONDecodeError
        raise ExperimentError(f"{path} is not valid JSON ({error}): delete it to have it made again") from error


def load_tensors(path: Path) -> dict[str, Any]:
    """A checkpoint: tensors and plain values only, nothing that could run code.

    Raises:
        ExperimentError: the file is not whole, or not a checkpoint.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise zipfile.BadZipFile("it is not a whole zip file")
        state = read_torch(path)
    except Exception as error:  # a damaged file can make torch raise anything
        raise ExperimentError(f"{path} cannot be read as a checkpoint ({error}): delete it to start again") from error
    if not isinstance(state, dict) or "digest" not in state:
        raise ExperimentError(f"{path} is not a checkpoint of a run: delete it to start again")
    return state


def hide_from_git(folder: Path) -> None:
    """Keep temporary files of a folder out of the repository that it may be in."""
    ignore = folder / ".gitignore"
    with _explained(ignore):
        if not ignore.exists() or not ignore.stat().st_size:  # a killed process leaves it empty
            ignore.write_text("*\n")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


@contextmanager
def locked(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends.

    Args:
        path: of the lock's file.
        patience: how many seconds to wait for a process that holds it.

    Raises:
        Busy: another process holds it.
        ExperimentError: there are no locks here.
    """
    with ExitStack() as stack:
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(path, "w"))
        deadline = time.monotonic() + patience
        while not _taken(file.fileno(), path):
            if time.monotonic() >= deadline:
                raise Busy(f"{path.parent} is being worked on by another process")
            time.sleep(0.1)
        yield


def _taken(file: int, path: Path) -> bool:
    """Whether the lock on an open file is ours now."""
    try:
        import fcntl
    except ModuleNotFoundError as error:
        raise ExperimentError("runs need the file locks of a POSIX system") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # ENOLCK, EOPNOTSUPP, ENOSYS, ...: what file systems over a network say
        raise ExperimentError(
            f"{path} cannot be locked ({error.strerror}): its file system has no locks, without which two processes "
            "could do the same run; choose folders (--records, --work) on one that has"
        ) from error
    return True
