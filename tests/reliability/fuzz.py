"""Mutated files for every loader: `python -m tests.reliability.fuzz INPUTS`, a line of JSON for each of them.

Every loader gets its inputs in a process of its own, whose memory and time are limited, and may only do what it
promises: load, or raise one of its errors.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from tests.reliability.confined import confined
from tests.reliability.loaders import Loader, every_loader

#: What a loader of files of a few kilobytes may ask for.
MEGABYTES = 512


def fed(name: str, loader: Loader, inputs: int) -> dict[str, Any]:
    """What came of so many inputs; the same for a name and a number."""
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(inputs):
            chance = random.Random(f"{name} {number}")
            folder = _write(Path(scratch), loader, chance)
            start = time.process_time()
            try:
                loader.read(folder)
                outcomes["loaded"] += 1
            except loader.errors as error:
                outcomes[type(error).__name__ if str(error).strip() else "error without a message"] += 1
            except Exception as error:
                raise AssertionError(f"{name}, input {number}: not one of {loader.errors}") from error
            slowest = max(slowest, time.process_time() - start)
    return {"outcomes": dict(outcomes), "slowest": slowest}


def _write(scratch: Path, loader: Loader, chance: random.Random) -> Path:
    """A folder with one input."""
    folder = scratch / "input"
    shutil.rmtree(folder, ignore_errors=True)
    for file, content in (*loader.beside, chance.choice(loader.mutants)(chance)):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    return folder


def main(inputs: int) -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    for name, loader in every_loader().items():
        for mutant in loader.mutants:  # what a process does only once is done before the others are forked
            mutant(random.Random(0))
        told = confined(lambda name=name, loader=loader: fed(name, loader, inputs), MEGABYTES, 5 + inputs // 20)  # type: ignore[misc]
        print(json.dumps({"name": name, **told}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
