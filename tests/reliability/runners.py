"""Two processes that do the same runs in the same folder at once: `python -m tests.reliability.runners FOLDER ROUNDS`.

Prints a line of JSON per round: how often each run was trained, and any found busy, and whether all ended as runs that
nobody else was at.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from contextual_dropout_lab.errors import Busy
from contextual_dropout_lab.runs.ensembles import ensemble_records
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.store.files import read_json
from contextual_dropout_lab.store.provenance import provenance
from contextual_dropout_lab.store.results import Results
from tests.lab.runs.tiny import folders, tiny
from tests.reliability.stress import outcome

CONFIGS = [tiny(seed=seed, epochs=2, noise_draws=1) for seed in range(4)]


def runner(results: Results, log: Path) -> None:
    """Do all runs, those last that the other is at; after each, the ensembles of those that are done."""
    todo, noted = list(CONFIGS), list[str]()
    while todo:
        config = todo.pop(0)

        def progress(epoch: int, name: str = f"trained {config.seed}") -> None:
            if epoch == 0:
                noted.append(name)

        try:
            run(config, results, progress=progress)
        except Busy:
            noted.append("busy")
            todo.append(config)
        ensemble_records(CONFIGS, results)
    log.write_text(json.dumps(noted))


def forked(results: Results, log: Path) -> int:
    child = os.fork()
    if not child:
        try:
            runner(results, log)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def together(folder: Path, straight: list[dict[str, Any]]) -> dict[str, Any]:
    results, logs = folders(folder / "results"), [folder / "one", folder / "other"]
    folder.mkdir()
    children = [forked(results, log) for log in logs]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(statuses):
        raise RuntimeError(f"the processes ended with status {statuses}")
    noted = [each for log in logs for each in json.loads(log.read_text())]
    ensemble = read_json(results.path(CONFIGS[0]).with_name("ensemble.json"))
    return {
        "trained": [noted.count(f"trained {config.seed}") for config in CONFIGS],
        "busy": noted.count("busy"),
        "ensemble": ensemble["seeds"],
        "same": [outcome(config, results) for config in CONFIGS] == straight,
    }


def main(folder: Path, rounds: int) -> None:
    torch.set_num_threads(1)
    provenance()
    load_examples(CONFIGS[0])
    alone = folders(folder / "alone")
    child = forked(alone, folder / "log")
    assert os.waitpid(child, 0)[1] == 0
    straight = [outcome(config, alone) for config in CONFIGS]
    for number in range(rounds):
        print(json.dumps(together(folder / str(number), straight)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
