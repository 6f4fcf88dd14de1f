"""Runs as jobs, each in a process of its own that submitit starts on this machine as it would on another."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import submitit

from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.launch import slurm
from contextual_dropout_lab.launch.slurm import cluster_sweep, executor_for
from contextual_dropout_lab.runs.run import run
from tests.lab.launch.test_local import Log
from tests.lab.runs.tiny import comparable, folders, tiny
from tests.reliability.record import record


@pytest.mark.slow
def test_runs_are_jobs_that_start_in_their_order(tmp_path: Path) -> None:
    """One starts from another's network; one cannot be done; one waits for a run that is not among them."""
    plain: dict[str, Any] = {"conversion": "none", "options": {}, "objective": {}}
    first = tiny("first", epochs=2, **plain)
    second = tiny("second", epochs=2, start_from="{experiment}/noisy/first/seed-{seed}", **plain)
    impossible = tiny("impossible", epochs=2, data="mnist")
    waiting = tiny("waiting", epochs=2, start_from="{experiment}/noisy/nobody/seed-{seed}", **plain)
    log = Log()
    executor = executor_for("local", tmp_path / "jobs", {"timeout_min": 5})
    results = folders(tmp_path / "jobs")
    empty = tmp_path / "empty"
    empty.mkdir()
    configs = [second, waiting, impossible, first]
    failures = cluster_sweep(configs, results, executor, data_directory=empty, watcher=log)
    assert log.ended == [first.name, second.name]
    assert {failure.config.method for failure in failures} == {"impossible", "waiting"}
    messages = {failure.config.method: failure.message for failure in failures}
    assert "mnist" in messages["impossible"]
    assert "Traceback" not in messages["impossible"]
    assert "which is not trained yet" in messages["waiting"]
    for config in (first, second):
        straight = run(config, folders(tmp_path / "straight"))
        assert comparable(results.read(config) or {}) == comparable(straight)
    assert cluster_sweep([first, second], results, executor, watcher=log) == []
    assert len(log.ended) == 2


@pytest.mark.slow
def test_a_job_that_has_to_make_room_goes_on_later(tmp_path: Path) -> None:
    """A job that Slurm preempts is submitted again, and resumes from its checkpoint to the same end."""
    config, results = tiny(epochs=400), folders(tmp_path / "jobs")
    executor = executor_for("local", tmp_path / "jobs", {"timeout_min": 5})
    submitted: list[submitit.Job[Any]] = []

    class Executor(submitit.AutoExecutor):
        def submit(self, *arguments: Any, **keywords: Any) -> submitit.Job[Any]:
            submitted.append(super().submit(*arguments, **keywords))
            return submitted[-1]

    executor.__class__ = Executor

    def preempt() -> None:
        checkpoint = results.work / config.name / "checkpoint.pt"
        while not checkpoint.exists():
            time.sleep(0.05)
        command = ["pkill", "-USR2", "--parent", str(submitted[0].job_id)]  # the controller's only child
        subprocess.run(command, check=True)

    thread = threading.Thread(target=preempt)
    thread.start()
    assert cluster_sweep([config], results, executor) == []
    thread.join()
    assert "Requeued job" in Path(submitted[0].paths.stdout).read_text() + Path(submitted[0].paths.stderr).read_text()
    assert comparable(results.read(config) or {}) == comparable(run(config, folders(tmp_path / "straight")))
    claim = "A job of a sweep that was told to make room was submitted again, and ended as if nothing had happened."
    record("processes", "preempted-job", claim, {"jobs": 1, "preemptions": 1})


class Ended:
    """A job that ended well."""

    job_id = "7"

    def done(self) -> bool:
        return True

    def result(self) -> None:
        return None


def test_a_record_that_is_seen_late_or_is_damaged_ends_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of another machine are not always there at once."""
    late, damaged, never = (tiny(method) for method in ("late", "damaged", "never"))
    results, log = folders(tmp_path), Log()
    results.write(damaged, {})
    results.path(damaged).write_text("{")
    monkeypatch.setattr(slurm, "PAUSE", 0.01)
    monkeypatch.setattr(slurm, "PATIENCE", 1.0)
    timer = threading.Timer(0.3, lambda: results.write(late, {"digest": late.digest}))
    timer.start()
    running: Any = {Ended(): config for config in (damaged, late, never)}
    failures = slurm._follow(running, results, log)
    assert log.ended == [late.name]
    assert [failure.config for failure in failures] == [damaged, never]
    assert "is not valid JSON" in failures[0].message
    assert failures[1].message == "job 7 ended well, but its record is not here: is the folder shared?"


def test_unknown_clusters_and_parameters(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cluster 'moon'"):
        executor_for("moon", tmp_path, {})
    with pytest.raises(ConfigError, match="no_such_parameter"):
        executor_for("local", tmp_path, {"no_such_parameter": 1})
