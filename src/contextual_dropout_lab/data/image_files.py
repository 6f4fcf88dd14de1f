"""The files below a folder or in a tar archive, by names that begin with ``train/`` or ``val/``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.tar import read_members

__all__ = ["MAX_FILE", "Files", "read_file"]

#: Files of more bytes than this are refused: 64 MiB, far above any photograph of these sets.
MAX_FILE = 2**26

#: split / class / images / file
DEPTH = 4


class Files:
    """A folder or an archive of files; may be sent to worker processes, which read an archive again."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).expanduser()
        if not self.root.exists():
            raise DataError(f"{self.root} does not exist: expected a folder with train/ and val/, or a tar of one")
        self._archive: tuple[dict[str, memoryview], set[str]] | None = None

    def names(self, split: str) -> list[str]:
        """The names of all files of a split, sorted: whatever the file system or the archive says."""
        if self.root.is_dir():
            return sorted(_below(self.root / split, split, DEPTH - 1))
        return sorted(name for name in self._members()[0] if name.startswith(f"{split}/"))

    def folders(self, split: str) -> set[str]:
        """The names of the folders right below that of a split, hidden ones left out."""
        if self.root.is_dir():
            inside = self.root / split
            found = {entry.name for entry in inside.iterdir() if entry.is_dir()} if inside.is_dir() else set[str]()
        else:
            paths = [name.split("/") for name in self._members()[1]]
            found = {path[1] for path in paths if len(path) > 1 and path[0] == split}
        return {name for name in found if not name.startswith(".")}

    def read(self, name: str) -> bytes | memoryview:
        """The content of one of them."""
        return read_file(self.root / name) if self.root.is_dir() else self._members()[0][name]

    def length(self, name: str) -> int:
        """The size of one of the images in bytes."""
        return os.stat(self.root / name).st_size if self.root.is_dir() else len(self._members()[0][name])

    def _members(self) -> tuple[dict[str, memoryview], set[str]]:
        """Files and folders of the archive, by their names below the one folder that it may have them all in."""
        if self._archive is None:
            files, folders = read_members(self.root)
            tops = {name.partition("/")[0] for name in files} - {"train", "val"}
            nested = len(tops) == 1 and all(name.startswith(f"{min(tops)}/") for name in files)
            only = f"{min(tops)}/" if nested else ""
            contents = {name.removeprefix(only): content for name, content in files.items()}
            self._archive = contents, {name.removeprefix(only) for name in folders}
        return self._archive

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "_archive": None}


def read_file(path: Path) -> bytes:
    """The content of an image file.

    Raises:
        DataError: there is none, it cannot be read, or is longer than :data:`MAX_FILE`.
    """
    try:
        if not path.is_file():  # a pipe would be waited for, and some devices never end
            raise DataError(f"{path} cannot be read (there is no such file)")
        if (size := path.stat().st_size) > MAX_FILE:
            raise DataError(f"{path} is {size} bytes long: expected at most {MAX_FILE}")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error})") from error


def _below(folder: Path, prefix: str, depth: int) -> Iterator[str]:
    # Links are followed, for people keep ImageNet on another disk; the depth ends any circle.
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                yield f"{prefix}/{entry.name}"
            elif depth > 1 and entry.is_dir():
                yield from _below(folder / entry.name, f"{prefix}/{entry.name}", depth - 1)
