"""What is known of a loader of the package: mutants of a sound file, how it is called, which errors it promises."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextual_dropout_lab.data import DataError
from tests.reliability.mutations import Pack, as_json, mutated, mutated_value

#: A file by name for a loader, mutated by chance.
Mutant = Callable[[random.Random], tuple[str, bytes]]


@dataclass(frozen=True)
class Loader:
    """One way into the package.

    Attributes:
        mutants: of the files that it reads.
        read: loads what is in a folder.
        errors: that it promises.
        beside: further files that it needs, which stay sound.
    """

    mutants: tuple[Mutant, ...]
    read: Callable[[Path], object]
    errors: tuple[type[Exception], ...] = (DataError,)
    beside: tuple[tuple[str, bytes], ...] = ()


def part(name: str, content: bytes, pack: Pack = bytes) -> Mutant:
    """Bytes that are mutated and then packed."""
    return lambda chance: (name, pack(mutated(content, chance)))


def value(name: str, content: Any, pack: Callable[[Any], bytes] = as_json) -> Mutant:
    """A structure that is mutated and then written."""
    return lambda chance: (name, pack(mutated_value(content, chance)))


def only(read: Callable[[Path], object]) -> Callable[[Path], object]:
    """For a loader of one file."""
    return lambda folder: read(next(folder.iterdir()))


def written(write: Callable[[Path], object]) -> bytes:
    """The one file that ``write`` leaves in a folder, wherever."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return next(path for path in sorted(Path(folder).rglob("*")) if path.is_file()).read_bytes()


def every_loader() -> dict[str, Loader]:
    """By what they read."""
    from tests.reliability import data_loaders, run_loaders, serve_loaders

    of_data = {**data_loaders.images(), **data_loaders.questions()}
    return {**of_data, **run_loaders.runs(), **run_loaders.networks(), **serve_loaders.visitors()}
