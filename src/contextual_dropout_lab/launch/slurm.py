"""Runs as jobs of a cluster: Slurm through submitit, or processes of this machine that behave like its jobs.

Runs are independent, take minutes to days, and meet in a folder that all machines see: a queue is all they need, and
most clusters have one already. Ray would bring a scheduler of its own, which has to be kept alive beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
import torch

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.errors import ConfigError, ExperimentError
from contextual_dropout_lab.launch.local import Failure, Watcher
from contextual_dropout_lab.launch.torchrun import launch
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.run import missing_start, run
from contextual_dropout_lab.store.results import Results

__all__ = ["Job", "cluster_sweep", "executor_for"]

#: Seconds between two looks at the jobs.
PAUSE = 0.5
#: Seconds in which the record of a job that ended well has to be seen here.
PATIENCE = 60.0


@dataclass(frozen=True)
class Job:
    """One run, as submitit calls it."""

    config: RunConfig
    results: Results
    data_directory: str | None

    def __call__(self) -> str | None:
        """Do the run; an error that the user can put right is returned as a message."""
        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
        try:
            if self.config.devices > 1:
                launch(self.config, self.results, self.data_directory, None)
            else:
                run(self.config, self.results, self.data_directory)
        except (ExperimentError, DataError) as error:
            return str(error)
        return None

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Submit the job again when it has to make room or is out of time; its run resumes from its own checkpoint."""
        return submitit.helpers.DelayedSubmission(self)


def executor_for(cluster: str, folder: Path, parameters: Mapping[str, Any]) -> submitit.AutoExecutor:
    """The executor that jobs are given to.

    Args:
        cluster: "slurm", or "local" for processes of this machine.
        folder: for what jobs print and return; all machines see it.
        parameters: of submitit, e.g. timeout_min, cpus_per_task, gpus_per_node, slurm_partition.

    Raises:
        ConfigError: there is no such cluster here, or no such parameter.
    """
    try:
        executor = submitit.AutoExecutor(folder.resolve(), cluster=cluster)
        executor.update_parameters(**parameters)
    except (NameError, RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(f"cluster {cluster!r} with {dict(parameters)}: {error}") from error
    return executor


def cluster_sweep(
    configs: Iterable[RunConfig],
    results: Results,
    executor: submitit.AutoExecutor,
    *,
    data_directory: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
) -> list[Failure]:
    """Submit all runs that are not done, each as a job, and wait for them; those that others start from come first.

    Interrupted, it leaves the jobs in the queue; started again, it submits what is not done, and a run that a job is
    at already fails with a message that says so.

    Returns:
        What failed.
    """
    watcher = watcher or Watcher()
    configs = list(configs)
    results = Results(results.records.resolve(), results.work.resolve())
    data = None if data_directory is None else str(Path(data_directory).resolve())
    todo = [config for config in configs if results.read(config) is None]
    watcher.planned(todo, len(configs) - len(todo))
    failures: list[Failure] = []
    while todo:
        wave = [config for config in todo if missing_start(config, results) is None]
        if not wave:
            failures += [Failure(config, str(missing_start(config, results))) for config in todo]
            break
        with executor.batch():
            jobs = [executor.submit(Job(config, results, data)) for config in wave]
        failures += _follow(dict(zip(jobs, wave, strict=True)), results, watcher)
        todo = [config for config in todo if config not in wave]
    return failures


def _follow(running: dict[submitit.Job[str | None], RunConfig], results: Results, watcher: Watcher) -> list[Failure]:
    """Wait until all jobs have ended."""
    failures: list[Failure] = []
    while running:
        for job in [job for job in running if job.done()]:
            config = running.pop(job)
            found = _record(job, config, results)
            if isinstance(found, Failure):
                failures.append(found)
                watcher.failed(found)
            else:
                watcher.finished(config, found)
        time.sleep(PAUSE)
    return failures


def _record(job: submitit.Job[str | None], config: RunConfig, results: Results) -> dict[str, Any] | Failure:
    """The record of a job that has ended. A network folder may show another machine's files only after a while."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            record = results.read(config)
        except ExperimentError as error:  # it is damaged
            return Failure(config, str(error))
        if record is not None:
            return record
        if (message := _message(job)) is not None:
            return Failure(config, message)
        if time.monotonic() > deadline:
            return Failure(config, f"job {job.job_id} ended well, but its record is not here: is the folder shared?")
        time.sleep(PAUSE)


def _message(job: submitit.Job[str | None]) -> str | None:
    """The reason why a job left no record; None where it ended well."""
    try:
        return job.result()
    except Exception as error:  # submitit raises what the job raised, or that it was killed
        return f"job {job.job_id}: {error}"
