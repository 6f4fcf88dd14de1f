"""A run that is killed before each of its file operations: `python -m tests.reliability.operations FOLDER STRIDE`.

Prints a line of JSON: before how many operations it was killed, and after which of those it did not end as a run that
nobody touched.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from contextual_dropout_lab.runs import training
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.store.provenance import provenance
from tests.lab.runs.tiny import folders
from tests.reliability.stress import attempt, outcome, stressed

CONFIG = stressed("sampled-arm", epochs=2, noise_draws=1)
OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree")


def killed_before(number: int, folder: Path) -> Callable[[Callable[[int], None]], object]:
    """A run that kills its process when it is about to do this one of its operations in the folder."""

    def work(progress: Callable[[int], None]) -> None:
        done = 0

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal done
            if event in OPERATIONS and str(arguments[0]).startswith(str(folder)):
                done += 1
                if done == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        run(CONFIG, folders(folder))

    return work


def main(folder: Path, stride: int) -> None:
    torch.set_num_threads(1)
    training.CHECKPOINT_EVERY = 1
    provenance()
    load_examples(CONFIG)
    attempt(lambda progress: run(CONFIG, folders(folder / "straight")))
    expected, number, wrong = outcome(CONFIG, folders(folder / "straight")), 1, list[int]()
    while attempt(killed_before(number, folder / "killed"))[0]:
        attempt(lambda progress: run(CONFIG, folders(folder / "killed")))
        if outcome(CONFIG, folders(folder / "killed")) != expected:
            wrong.append(number)
        shutil.rmtree(folder / "killed")
        number += stride
    print(json.dumps({"kills": len(range(1, number, stride)), "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
