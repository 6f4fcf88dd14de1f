from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.errors import Busy
from contextual_dropout_lab.launch.local import Failure, Watcher, sweep
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.ensembles import ensemble_records
from contextual_dropout_lab.runs.evaluation import scores_of
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.store.files import locked, read_json
from tests.lab.runs.tiny import comparable, folders, tiny

ROOT = Path(__file__).parents[3]


class Log(Watcher):
    def __init__(self) -> None:
        self.done = 0
        self.epochs: dict[str, int] = {}
        self.ended: list[str] = []
        self.failures: list[Failure] = []

    def planned(self, todo: list[RunConfig], done: int) -> None:
        self.done = done

    def epoch(self, config: RunConfig, epoch: int) -> None:
        self.epochs[config.name] = epoch

    def finished(self, config: RunConfig, record: dict[str, Any]) -> None:
        self.ended.append(config.name)

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure)


class Killer(Log):
    """Kills the worker processes once, when a run has done a few epochs."""

    killed = 0

    def epoch(self, config: RunConfig, epoch: int) -> None:
        super().epoch(config, epoch)
        if epoch >= 6 and not self.killed:
            for worker in multiprocessing.active_children():
                worker.kill()
                self.killed += 1


def test_runs_in_processes_give_what_a_run_gives(tmp_path: Path) -> None:
    results, log = folders(tmp_path / "sweep"), Log()
    configs = [tiny(seed=seed) for seed in range(3)]
    run(configs[1], results)
    assert sweep(configs, results, processes=2, watcher=log) == []
    assert log.done == 1
    assert sorted(log.ended) == [configs[0].name, configs[2].name]
    assert set(log.epochs.values()) == {7}
    here = run(configs[2], folders(tmp_path / "here"))
    there = results.read(configs[2])
    assert there is not None
    assert comparable(there) == comparable(here)


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    results, log = folders(tmp_path), Log()
    bad, busy, good = tiny("bad", conversion="magic"), tiny("busy"), tiny("good")
    with locked(results.work / busy.name / "lock"):
        failures = sweep([bad, busy, good], results, watcher=log)
    assert [failure.config for failure in failures] == [bad, busy]
    assert "unknown conversion 'magic'" in failures[0].message
    assert failures[1].message.endswith("is being worked on by another process")
    assert log.ended == [good.name]


@pytest.mark.slow
def test_runs_of_several_processes_wait_for_others_too(tmp_path: Path) -> None:
    """Runs are not begun before the network that they start from is there, nor while another process does them."""
    results, log = folders(tmp_path), Log()
    first = tiny("first", epochs=1, conversion="none", options={}, objective={})
    waiting = tiny("waiting", epochs=1, devices=2, start_from="tiny/noisy/first/seed-{seed}")
    busy = tiny("busy", epochs=1, devices=2)
    with locked(results.work / busy.name / "lock"):
        failures = sweep([waiting, busy, first], results, watcher=log)
    assert [failure.config for failure in failures] == [busy]
    assert failures[0].message == f"{results.work / busy.name} is being worked on by another process"
    assert log.ended == [first.name, waiting.name]


def test_killed_workers_are_replaced(tmp_path: Path) -> None:
    results, log = folders(tmp_path / "killed"), Killer()
    config = tiny(epochs=400)
    assert sweep([config], results, watcher=log) == []
    assert log.killed
    resumed = results.read(config)
    assert resumed is not None
    assert comparable(resumed) == comparable(run(config, folders(tmp_path / "straight")))


def test_ensembles_share_the_samples_and_are_averaged_over_subsets(tmp_path: Path) -> None:
    results = folders(tmp_path)
    configs = [tiny(seed=seed) for seed in range(3)]
    for config in configs:
        run(config, results)
    assert ensemble_records(configs, results) == ["tiny/noisy/contextual"]
    record = read_json(results.path(configs[0]).with_name("ensemble.json"))
    assert (record["seeds"], record["noise"], record["total_samples"]) == ([0, 1, 2], "noise-0.5", 6)
    assert {size: values["subsets"] for size, values in record["members"].items()} == {"1": 3, "2": 3, "3": 1}
    kept = [results.predictions(config) for config in configs]
    labels = load_examples(configs[0]).test_y
    accuracies = []
    for draw in range(2):
        together = sum(each[f"noise-0.5/{draw}"].samples[:2].mean(0) for each in kept if each) / 3
        accuracies.append(100 * (together.argmax(1) == labels).double().mean().item())
    assert record["members"]["3"]["accuracy"] == pytest.approx(sum(accuracies) / 2)
    alone = [read_json(results.path(config))["test"]["noise-0.5"]["accuracy"] for config in configs]
    assert record["members"]["1"]["accuracy"] == pytest.approx(sum(alone) / 3, abs=1e-3)
    likelihoods = [read_json(results.path(config))["test"]["noise-0.5"]["log_likelihood"] for config in configs]
    assert record["members"]["1"]["log_likelihood"] == pytest.approx(sum(likelihoods) / 3, abs=1e-3)
    assert set(record["members"]["2"]["pavpu"]) == {"0.01", "0.05", "0.1"}


def test_figures_of_one_sample_have_no_p_values() -> None:
    values = scores_of(Prediction(torch.rand(1, 8, 3).softmax(-1)), torch.zeros(8, dtype=torch.long))
    assert values["pavpu"] == {}
    assert values["aurc_p_value"] is None


SWEEP = """
import signal, sys
from pathlib import Path
from contextual_dropout_lab.launch.local import Watcher, sweep
from tests.lab.runs.tiny import folders, tiny
class PrintingWatcher(Watcher):
    def epoch(self, config, epoch):
        print(epoch, flush=True)
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background processes lack
    sweep([tiny(seed=seed, epochs=100_000) for seed in range(3)], folders(Path(sys.argv[1])), watcher=PrintingWatcher())
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_it_leaves_no_worker(tmp_path: Path, stop: signal.Signals) -> None:
    """Ctrl-C ends the sweep at once, and no process keeps training for a parent that was killed."""
    (tmp_path / "script.py").write_text(SWEEP)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    next(line for line in process.stdout if int(line) >= 5)
    deadline = time.monotonic() + 60
    while process.poll() is None:  # one that comes while Python cleans up is lost: press again
        assert time.monotonic() < deadline
        process.send_signal(stop)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
    process.stdout.close()
    deadline = time.monotonic() + 30
    while True:
        try:
            with locked(tmp_path / "work" / tiny().name / "lock"):
                break
        except Busy:
            assert time.monotonic() < deadline
            time.sleep(0.2)
