"""Files that are whole or not there, and locks."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from contextual_dropout.experiments.errors import Busy, ExperimentError

__all__ = ["load_tensors", "locked", "read_json", "remove_leftovers", "replace_file", "write_json"]


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Write to the path given inside; at the end it takes the place of ``path`` at once, or, on error, is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of attempts to replace ``path``; the caller knows that no other is at it."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON, all of it or nothing."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is named."""
    try:
        return json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ExperimentError(f"{path} is no valid JSON ({error}): delete it to have it made again") from error


def load_tensors(path: Path) -> dict[str, Any]:
    """A checkpoint: tensors and plain values only, nothing that could run code."""
    try:
        state = torch.load(path, weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        raise ExperimentError(f"{path} cannot be read as a checkpoint ({error}): delete it to start anew") from error
    if not isinstance(state, dict):
        raise ExperimentError(f"{path} is no checkpoint of a run: delete it to start anew")
    return state


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends.

    Raises:
        Busy: another process holds it.
    """
    try:
        import fcntl
    except ModuleNotFoundError as error:
        raise ExperimentError("runs need the file locks of a POSIX system") from error

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(f"{path.parent} is being worked on by another process") from error
        yield
