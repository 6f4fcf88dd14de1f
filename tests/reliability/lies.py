"""Small files that declare, or unpack to, far more than they are: `python -m tests.reliability.lies quick|thorough`.

A line of JSON for each. Every file is loaded in a process of its own, whose memory and time are limited.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.reliability import data_lies, run_lies
from tests.reliability.confined import confined
from tests.reliability.loaders import Loader, every_loader

#: The address space that a loader may ask for; what it really takes is in the test.
MEGABYTES, SECONDS = 6000, 60


@dataclass(frozen=True)
class Lie:
    """A file and who is lied to.

    Attributes:
        loader: its name.
        files: by name.
    """

    loader: str
    files: Callable[[], dict[str, bytes]]


def every_lie(thorough: bool) -> dict[str, Lie]:
    """By what they declare; those that take seconds only if asked for."""
    told = {**data_lies.QUICK, **run_lies.QUICK, **(data_lies.SLOW if thorough else {})}
    return {name: Lie(loader, files) for name, (loader, files) in told.items()}


def told_to(lie: Lie, loader: Loader, folder: Path) -> dict[str, Any]:
    """What the loader made of it."""
    try:
        loader.read(folder)
    except loader.errors as error:
        return {"answer": str(error)}
    return {"answer": None}


def main(thorough: bool) -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    lzma.compress(b"")
    loaders = every_loader()
    for name, lie in every_lie(thorough).items():
        loader = loaders[lie.loader]
        with tempfile.TemporaryDirectory() as scratch:
            files = {**dict(loader.beside), **lie.files()}
            for file, content in files.items():
                (path := Path(scratch, file)).parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            size = sum(map(len, files.values()))
            del files
            work = lambda lie=lie, loader=loader, folder=Path(scratch): told_to(lie, loader, folder)  # noqa: E731
            told = confined(work, MEGABYTES, SECONDS)
        print(json.dumps({"name": name, "loader": lie.loader, "bytes": size, **told}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] == "thorough")
