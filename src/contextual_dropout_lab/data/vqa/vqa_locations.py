"""The files of a VQA data set in the places of :mod:`contextual_dropout_lab.data.locations`; nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.locations import VARIABLE, search_places

__all__ = ["Directory", "locate_files"]

Directory = str | os.PathLike[str]


def locate_files(name: str, files: Sequence[str], directory: Directory | None = None) -> tuple[Path, ...]:
    """The first place that has all of these files, each as it is, or as ``.gz`` or ``.xz``.

    Args:
        name: of the data set, and of its sub-folder.
        files: their names, not compressed.
        directory: the only folder to look at, if given.

    Returns:
        The paths, in the order of ``files``.

    Raises:
        DataError: no place has them all; says what each of them has.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "questions.json.gz").touch()
        ...     [path.name for path in locate_files("vqa-v2", ["questions.json"], folder)]
        ['questions.json.gz']
    """
    looked = []
    for place in search_places(name, directory):
        found = [path for path in (_in(place, file) for file in files) if path]
        if len(found) == len(files):
            return tuple(found)
        state = ", ".join(path.name for path in found) or "none of the files"
        looked.append(f"\n  - {place}: {state if place.is_dir() else 'no such folder'}")
    raise DataError(
        f"{name} is in none of these places:{''.join(looked)}\nExpected {', '.join(files)}, with or without .gz or "
        f".xz. Put them into a folder {name}/ and either set the environment variable {VARIABLE} to the folder above "
        "it or pass that folder as directory."
    )


def _in(folder: Path, name: str) -> Path | None:
    return next((path for end in ("", ".gz", ".xz") if (path := folder / f"{name}{end}").is_file()), None)
