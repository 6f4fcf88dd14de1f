"""The way of a published file from its mirror to its place: whole and verified, or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.sources import File

__all__ = ["Progress", "fetch"]

#: Called with the file's name, the bytes that have arrived and the bytes in all: first with 0, last with all.
Progress = Callable[[str, int, int], None]

CHUNK = 2**16
TIMEOUT = 30.0  # seconds without a byte
STALE = 86_400.0  # seconds
#: Of the folders that are downloaded to.
PREFIX = ".fetch-"


def fetch(file: File, url: str, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch a file into a folder, which is made if need be.

    No more than the file's size is read. It appears under its name only once its SHA-256 has been verified; whatever
    goes wrong before, nothing is left behind. Two processes may fetch the same file at once.

    Args:
        file: its name, size and SHA-256.
        url: the mirror, to which the name is appended.
        folder: where the file is put.
        progress: called with how far the download is, for a progress bar.

    Returns:
        The path of the file.

    Raises:
        DataError: the mirror cannot be reached, or did not send this file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=folder) as scratch:
            part = Path(scratch, file.name)
            _download(file, url, part, progress)
            os.replace(part, folder / file.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be written to ({error}): set XDG_CACHE_HOME to a folder that can") from error
    return folder / file.name


def _remove_leftovers(folder: Path) -> None:
    """Remove the remains of downloads that were killed; those of one under way are younger."""
    for leftover in folder.glob(f"{PREFIX}*"):
        with suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > STALE:
                shutil.rmtree(leftover, ignore_errors=True)


def _download(file: File, url: str, part: Path, progress: Progress | None) -> None:
    digest, received = hashlib.sha256(), 0
    with part.open("wb") as out:
        for chunk in chain([b""], _chunks(url + file.name, file.size)):
            out.write(chunk)
            digest.update(chunk)
            received += len(chunk)
            if progress:
                progress(file.name, received, file.size)
        out.flush()
        os.fsync(out.fileno())
    _verify(file, url, received, digest.hexdigest())


def _chunks(url: str, size: int) -> Iterator[bytes]:
    """The body of the answer, cut off one byte after ``size``: that is enough to tell that it is too long."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            left = size + 1
            while left and (chunk := answer.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk
    except urllib.error.HTTPError as error:
        with error:
            raise DataError(f"{url} answers {error.code} {error.reason}: expected the file") from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{url} cannot be fetched ({error or repr(error)})") from error


def _verify(file: File, url: str, received: int, sha256: str) -> None:
    if received != file.size:
        found = f"more than {file.size}" if received > file.size else f"{received}"
        raise DataError(f"{url}{file.name} sent {found} bytes: expected {file.size}; nothing was kept")
    if sha256 != file.sha256:
        raise DataError(
            f"{url}{file.name} sent a file with SHA-256 {sha256}: expected {file.sha256}; nothing was kept, "
            "the mirror has another file now, or something on the way changes it"
        )
