"""One run on two processes: started by the runner or by torchrun, interrupted, and with a process killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.record import budget, record

pytestmark = pytest.mark.slow

#: Enough that a kill after the first checkpoint, in the fifth, comes seconds before the end.
EPOCHS = budget(80, 200)
#: The last batch has one row, of which the other process has none.
EXPERIMENT = f"""
base: {{data: digits, hidden: [24, 12], noise_sd: 0.2, epochs: {EPOCHS}, batch_size: 299, train_examples: 1197, \
samples: 4, noise_draws: 1, evaluate_every: {EPOCHS // 2}, devices: 2}}
settings: {{noisy: {{}}}}
methods:
  contextual:
    conversion: contextualize
    options: {{family: bernoulli, temperature: 1.0}}
    objective: {{estimator: sequential-disarm, kl_weight: 0.001, warmup_epochs: {EPOCHS // 2}}}
presets: {{quick: {{seeds: {{noisy: 1}}}}}}
"""
RUNNER = [sys.executable, "-m", "contextual_dropout_lab"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", RUNNER[-1]]


@pytest.fixture(autouse=True)
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """No process outlives its test."""
    _started.clear()
    yield _started
    for process in _started:
        end(process)


_started: list[subprocess.Popen[str]] = []


def start(folder: Path, starter: list[str], *changes: str) -> subprocess.Popen[str]:
    (folder / "pair.yaml").write_text(EXPERIMENT)
    places = ["--records", str(folder / "records"), "--work", str(folder / "work")]
    command = [*starter, "run", str(folder / "pair.yaml"), "noisy", "contextual", *places, *changes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    _started.append(process)
    return process


def wait(process: subprocess.Popen[str]) -> str:
    """Wait for its end, but no longer than tells a deadlock from a slow machine; returns its output."""
    output, _ = process.communicate(timeout=240)
    return output


def end(process: subprocess.Popen[str]) -> str:
    """Kill it and all that it started in its group; what it printed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return "" if process.stdout is None or process.stdout.closed else wait(process)


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not list(folder.glob("work/*/*/*/*/checkpoint.pt")):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(end(process))
        time.sleep(0.05)


def result(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The parts of a run that must not depend on how it was started: scores, learning curve and network."""
    kept = json.loads((folder / "records/pair/noisy/contextual/seed-0.json").read_text())
    network = (folder / "work/pair/noisy/contextual/seed-0/model.safetensors").read_bytes()
    return {name: kept[name] for name in ("digest", "history", "test")}, network


def descendants(pid: int) -> list[int]:
    """Processes that a process started, and those that they started; the eldest first."""
    table = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in table.splitlines()]
    children = [int(child) for child, parent, args in rows if int(parent) == pid and "resource_tracker" not in args]
    return children + [each for child in children for each in descendants(child)]


def test_the_runner_and_torchrun_do_the_same_and_go_on_after_a_kill(tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    whole.mkdir()
    torn.mkdir()
    process = start(whole, RUNNER)
    output = wait(process)
    assert process.returncode == 0, output
    assert output.count("pair/noisy/contextual/seed-0: accuracy") == 1
    process = start(torn, TORCHRUN)
    wait_for_checkpoint(torn, process)
    members = descendants(process.pid)
    process.kill()
    end(process)
    while any(Path(f"/proc/{pid}").exists() for pid in members):  # they notice that they are nobody's
        time.sleep(0.1)
    assert not list(torn.rglob("seed-0.json"))
    process = start(torn, TORCHRUN)
    output = wait(process)
    assert process.returncode == 0, output
    assert output.count("pair/noisy/contextual/seed-0: accuracy") == 1  # one process speaks
    assert result(torn) == result(whole)
    assert [point["epoch"] for point in result(whole)[0]["history"]] == [EPOCHS // 2, EPOCHS]
    claim = (
        "A run on two processes has the same bytes whether the runner or torchrun started it, and after torchrun was "
        "killed; batches are divided unequally, one leaves a process without a row."
    )
    record("processes", "two-starters", claim, {"epochs": EPOCHS, "kills": 1})


def test_a_killed_process_ends_the_run_with_a_message(tmp_path: Path) -> None:
    process = start(tmp_path, RUNNER, "--set", "epochs=100000")
    wait_for_checkpoint(tmp_path, process)
    worker, *members = descendants(process.pid)
    assert len(members) == 2
    killed = time.monotonic()
    os.kill(members[1], signal.SIGKILL)
    output = " ".join(wait(process).split())
    seconds = time.monotonic() - killed
    assert process.returncode == 1, output
    assert "was killed by SIGKILL (out of memory?); the others were ended" in output
    assert output.endswith("The same command resumes from the last checkpoint")
    assert not [pid for pid in (worker, *members) if Path(f"/proc/{pid}").exists()]
    claim = "When one of two processes that train together is killed, the run ends with a message that says so."
    record("processes", "killed-process", claim, {"seconds until the run had ended": round(seconds, 1)})


def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    process = start(tmp_path, TORCHRUN, "--set", "devices=3")
    output = " ".join(wait(process).split())
    assert process.returncode != 0
    assert "is for devices: 3, and 2 processes were started" in output
