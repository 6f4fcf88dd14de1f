"""Killed at any moment, a run goes on from its last checkpoint and ends as one that nobody touched, to the last bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.store.results import Results
from tests.lab.runs.tiny import folders, tiny
from tests.reliability.record import FULL, budget, record
from tests.reliability.scripts import ROOT, script
from tests.reliability.stress import METHODS, outcome


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_at_random_moments(tmp_path: Path) -> None:
    """Over start, epochs, checkpoints, evaluation and the writing of network, predictions and record."""
    kills = budget(4, 32)
    ended = script("stress", tmp_path, kills)
    assert [each["method"] for each in ended] == list(METHODS)
    assert [each["kills"] for each in ended] == [kills] * len(METHODS)
    assert all(each["same"] for each in ended)
    assert all(each["resumed"] and not each["began anew"] for each in ended), ended
    record(
        "interruption",
        "kills-at-random-moments",
        "A run that is killed (SIGKILL) at random moments and started again each time ends with the record, network, "
        "predictions and checkpoint of an uninterrupted one, bit by bit, and leaves no other file.",
        {
            "runs": len(ended),
            "kills survived, each run": kills,
            "kills survived, all runs": sum(each["kills"] for each in ended),
            "of these in the middle of writing a file": sum(each["in the middle of writing"] for each in ended),
            "attempts that found a checkpoint, and went on from it": sum(each["resumed"] for each in ended),
        },
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_before_each_file_operation(tmp_path: Path) -> None:
    (ended,) = script("operations", tmp_path, budget(20, 1))
    assert ended["kills"] >= budget(2, 40)
    assert ended["wrong"] == []
    record(
        "interruption",
        "kills-before-file-operations",
        "A run that is killed just before any one of its file operations (opening, making, renaming, removing) and "
        "started again ends as an uninterrupted one, bit by bit.",
        {"operations, a kill before each": ended["kills"]},
    )


SWEEP = """
import sys
from pathlib import Path
from contextual_dropout_lab.launch.local import sweep
from tests.lab.runs.tiny import folders
from tests.reliability.test_kills import SWEPT
if __name__ == "__main__":
    print(sweep(SWEPT, folders(Path(sys.argv[1])), processes=2), flush=True)
"""
SWEPT = [tiny(seed=seed, epochs=400) for seed in range(4)]


def newest(results: Results) -> int:
    """When the last checkpoint was written."""
    return max((path.stat().st_mtime_ns for path in results.work.glob("*/*/*/*/checkpoint.pt")), default=0)


@pytest.mark.skipif(
    not FULL,
    reason="takes minutes; CI kills a sweep and its workers in tests/lab/cli/test_app.py, and single workers in "
    "tests/lab/launch/test_local.py",
)
@pytest.mark.timeout(1200)
def test_a_sweep_with_its_workers(tmp_path: Path) -> None:
    """The processes are killed all at once, or the first of them alone: then the others end by themselves."""
    (tmp_path / "script.py").write_text(SWEEP)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "killed")]
    results, chance, kills = folders(tmp_path / "killed"), random.Random(0), 6
    for kill in range(kills):
        with subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL) as process:
            started, deadline = newest(results), time.monotonic() + 240
            while newest(results) <= started:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 0.5))
            if kill % 2:
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"  # nothing failed
    straight = folders(tmp_path / "straight")
    for config in SWEPT:
        run(config, straight)
        assert outcome(config, results) == outcome(config, straight)
    record(
        "interruption",
        "kills-of-a-sweep",
        "A sweep over runs in two worker processes that is killed, together with its workers or without them, and "
        "started again ends with the results of runs that nobody touched, bit by bit.",
        {"kills survived": kills, "runs": len(SWEPT)},
    )
