"""Records of runs: their folders, and finding them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.tasks import task_named
from contextual_dropout_lab.store.files import (
    hide_from_git,
    locked,
    read_json,
    remove_leftovers,
    write_json,
    write_tensors,
)

__all__ = ["PREDICTIONS", "Results"]

PREDICTIONS = "predictions.safetensors"
#: The folder of the locks among the records.
LOCKS = ".locks"


@dataclass(frozen=True)
class Results:
    """Two folders: small records to keep and track, and large files (checkpoints, networks, predictions) to work with.

    Args:
        records: of JSON files, experiment/setting/method/seed-n.json.
        work: of everything else, in folders of the same names.
        networks: a third one, of trained networks in half precision that are small enough to track: with these the
            predictions of a run can be made again where they were not stored. None if there are none.
    """

    records: Path
    work: Path
    networks: Path | None = None

    def path(self, config: RunConfig) -> Path:
        """The record's file."""
        return self.records / f"{config.name}.json"

    def network(self, config: RunConfig) -> Path | None:
        """The file of the run's network among those to track."""
        return None if self.networks is None else self.networks / f"{config.name}.safetensors"

    @contextmanager
    def locked(self, name: str, patience: float = 0.0) -> Iterator[None]:
        """Hold the files of a run in both folders: other processes may share only one of them.

        Args:
            name: of the run, or of runs whose files are written together.
            patience: how many seconds to wait for a process that is at them.

        Raises:
            Busy: another process is at them.
        """
        locks = self.records / LOCKS
        with locked(self.work / name / "lock", patience), locked(locks / name / "lock", patience):
            hide_from_git(locks)
            yield

    def read(self, config: RunConfig) -> dict[str, Any] | None:
        """The record of exactly this configuration; None if there is none."""
        path = self.path(config)
        if not path.exists():
            return None
        record = _record(path)
        return record if record.get("digest") == config.digest else None

    def write(self, config: RunConfig, record: dict[str, Any]) -> None:
        """Write a record."""
        write_json(self.path(config), record)

    def write_ensemble(self, config: RunConfig, record: dict[str, Any]) -> None:
        """Write the record of the ensembles of this run and its like; the caller excludes other writers."""
        path = self.path(config).with_name("ensemble.json")
        remove_leftovers(path)
        write_json(path, record)

    def ensemble_digests(self, config: RunConfig) -> list[str]:
        """The digests of the runs that the ensemble record beside this run's was made of; none without one."""
        path = self.path(config).with_name("ensemble.json")
        try:
            found = _record(path).get("digests", []) if path.exists() else []
        except ExperimentError:  # it is damaged, and is to be written again
            return []
        return [digest for digest in found if isinstance(digest, str)] if isinstance(found, list) else []

    def all(self, experiment: str) -> Iterator[dict[str, Any]]:
        """Every record of an experiment, by setting, method and seed."""
        for path in sorted((self.records / experiment).glob("*/*/seed-*.json")):
            yield _record(path)

    def write_predictions(self, config: RunConfig, predictions: dict[str, list[Classification]]) -> None:
        """Write samples as logits in half precision, (K, N, C) for every noise level and draw."""
        tensors = {
            f"{name}/{draw}": task_named(config.task).logits(prediction.samples).to(torch.float16)
            for name, draws in predictions.items()
            for draw, prediction in enumerate(draws)
        }
        write_tensors(self._predictions(config), tensors, {"digest": config.digest})

    def predictions(self, config: RunConfig) -> dict[str, Classification] | None:
        """The predictions of exactly this run, by "noise level/draw"; None where they were not stored.

        Raises:
            ExperimentError: the file is damaged.
        """
        path, task = self._predictions(config), task_named(config.task)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("digest") != config.digest:
                    return None
                kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
            if not all(values.isfinite().all() for values in kept.values()):
                raise ValueError("it has logits that are not numbers")
            return {name: task.prediction(values.double()) for name, values in kept.items()}
        except (SafetensorError, ValueError) as error:
            raise ExperimentError(f"{path} is damaged ({error}): delete it and the record to repeat the run") from error

    def _predictions(self, config: RunConfig) -> Path:
        return self.work / config.name / PREDICTIONS


def _record(path: Path) -> dict[str, Any]:
    record = read_json(path)
    if not isinstance(record, dict):
        raise ExperimentError(f"{path} is not a record of a run: delete it to have it made again")
    return record
