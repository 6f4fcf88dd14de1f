"""Runs that are killed again and again: `python -m tests.reliability.stress FOLDER KILLS`.

One process imports everything, then each attempt is a process forked from it, so that thirty attempts take seconds. It
prints a line of JSON per method: what was done, and whether the run ended as one that nobody touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from contextual_dropout_lab.runs import training
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.store.files import load_tensors
from contextual_dropout_lab.store.provenance import provenance
from contextual_dropout_lab.store.results import Results
from tests.lab.runs.tiny import comparable, folders, tiny

EPOCHS = 30
#: Kinds of state that a resumed run has to find again: optimizers, rates, KL weights, baselines, half-summed gradients.
METHODS: dict[str, dict[str, Any]] = {
    "sampled-arm": {
        "objective": {"estimator": "sampled-arm", "kl_weight": 0.01, "warmup_epochs": 12},
        "optimizer": {"lr": 3e-3, "phi_lr": 1e-2, "milestones": [10, 20], "factor": 0.3},
    },
    "reinforce": {
        "objective": {"estimator": "reinforce", "kl": "sampled", "kl_weight": 0.01},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "warmup_epochs": 8},
    },
    "gaussian": {"options": {"family": "gaussian", "reduction": 4}, "accumulate": 2},
}


def stressed(method: str, **changes: Any) -> RunConfig:
    return tiny(method, **{"epochs": EPOCHS, "hidden": (16, 16), "batch_size": 100, **METHODS[method], **changes})


def files_of(config: RunConfig, results: Results) -> dict[str, Path]:
    """All files that a run leaves, by their path in the folder."""
    folder, own = results.work.parent, f"seed-{config.seed}"
    paths = (path for path in sorted(folder.rglob("*")) if own in (path.stem, path.parent.name) and path.is_file())
    return {str(path.relative_to(folder)): path for path in paths if path.name != "lock"}


def outcome(config: RunConfig, results: Results) -> dict[str, Any]:
    """All that a run leaves, but for times."""
    found: dict[str, Any] = {}
    for name, path in files_of(config, results).items():
        if path == results.path(config):
            found[name] = comparable(results.read(config) or {})
        elif path.name == "checkpoint.pt":
            found[name] = _without_times(load_tensors(path))
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found | {"left over": sorted(path.name for path in results.work.parent.rglob("*.tmp"))}


def _without_times(state: dict[str, Any]) -> str:
    kept = {name: value for name, value in state.items() if name not in ("cpu_seconds", "wall_seconds", "commits")}
    values = [leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else repr(leaf) for leaf in tree_leaves(kept)]
    return hashlib.sha256(repr(values).encode()).hexdigest()


@dataclass(frozen=True)
class Moment:
    """When to kill: so many seconds after so many epochs; none of them done at -1, where it has just been started."""

    epoch: int
    delay: float


def attempt(
    work: Callable[[Callable[[int], None]], object], moment: Moment | None = None
) -> tuple[bool, list[float], int | None]:
    """Work in a process of its own.

    Returns:
        Whether it was killed; when it was started, told of epochs, and ended; the first epoch that it told of.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            work(lambda epoch: os.write(writer, bytes([epoch])) and None)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    times = [time.monotonic()]
    begun, done = None, -1
    while (moment is None or done < moment.epoch) and (news := os.read(reader, 1)):
        done = news[0]
        begun = done if begun is None else begun
        times.append(time.monotonic())
    if moment is not None:
        time.sleep(moment.delay)
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the process ended with status {status}")
    return status != 0, [*times, time.monotonic()], begun


def moments(kills: int, times: list[float], chance: random.Random) -> list[Moment]:
    """Spread over start, epochs with their checkpoints, and evaluation with all that is written after it."""
    start, epoch, end = times[1] - times[0], (times[-2] - times[1]) / EPOCHS, times[-1] - times[-2]
    early, late = kills // 4, kills // 4
    inside = sorted(chance.randrange(EPOCHS) for _ in range(kills - early - late))
    planned = [Moment(number, chance.uniform(0, 1.5 * epoch)) for number in inside]
    for _ in range(early):
        planned.insert(chance.randrange(len(planned) + 1), Moment(-1, chance.uniform(0, start)))
    return planned + [Moment(EPOCHS, chance.uniform(0, 0.9 * end)) for _ in range(late)]


def survive(config: RunConfig, folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """What came of a run that was killed so often."""
    straight, results = folders(folder / "straight"), folders(folder / "killed")
    _, times, _ = attempt(lambda progress: run(config, straight, progress=progress))
    survived = writing = 0
    resumed: list[int] = []  # where those went on that found a checkpoint

    def again(moment: Moment | None = None) -> bool:
        found = (results.work / config.name / training.CHECKPOINT).exists()
        killed, _, begun = attempt(lambda progress: run(config, results, progress=progress), moment)
        if found and begun is not None:
            resumed.append(begun)
        return killed

    for moment in moments(kills, times, chance):
        killed = False
        while not killed:
            results.path(config).unlink(missing_ok=True)  # the last moment came too late: write it once more
            killed = again(moment)
            moment = Moment(moment.epoch, 0.7 * moment.delay)
        survived += 1
        writing += any(results.work.parent.rglob("*.tmp"))
    again()
    return {
        "method": config.method,
        "kills": survived,
        "in the middle of writing": writing,
        "resumed": len(resumed),
        "began anew": resumed.count(0),
        "same": outcome(config, results) == outcome(config, straight),
    }


def main(folder: Path, kills: int) -> None:
    torch.set_num_threads(1)
    training.CHECKPOINT_EVERY = 2
    provenance()
    load_examples(stressed("gaussian"))  # what a process does only once is done before the others are forked
    for number, method in enumerate(METHODS):
        print(json.dumps(survive(stressed(method), folder / method, kills, random.Random(number))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
