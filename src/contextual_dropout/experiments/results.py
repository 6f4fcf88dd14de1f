"""Records of runs: where they are, and how they are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.files import read_json, write_json

__all__ = ["NotReady", "Results"]


class NotReady(RuntimeError):
    """A run that has to be done before this one is not done."""


@dataclass(frozen=True)
class Results:
    """Two folders: small records to keep and track, and large files (checkpoints, networks, predictions) to work with.

    Args:
        records: of JSON files, experiment/setting/method/seed-n.json.
        work: of everything else, in folders of the same names.
    """

    records: Path
    work: Path

    def path(self, config: RunConfig) -> Path:
        """The record's file."""
        return self.records / f"{config.name}.json"

    def read(self, config: RunConfig) -> dict[str, Any] | None:
        """The record of exactly this configuration; None if there is none."""
        path = self.path(config)
        if not path.exists():
            return None
        record: dict[str, Any] = read_json(path)
        return record if record.get("digest") == config.digest else None

    def write(self, config: RunConfig, record: dict[str, Any]) -> None:
        """Keep a record."""
        write_json(self.path(config), record)

    def write_ensemble(self, config: RunConfig, record: dict[str, Any]) -> None:
        """Keep the record of the ensembles of this run and its like."""
        write_json(self.path(config).with_name("ensemble.json"), record)

    def all(self, experiment: str) -> Iterator[dict[str, Any]]:
        """Every record of an experiment, by setting, method and seed."""
        for path in sorted((self.records / experiment).glob("*/*/seed-*.json")):
            yield read_json(path)

    def predictions(self, name: str) -> dict[str, Tensor] | None:
        """The sampled probabilities of a run by "noise level/draw", (K, N, C); None where they were not kept."""
        path = self.work / name / "predictions.safetensors"
        try:
            return load_file(path)
        except FileNotFoundError:
            return None
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged ({error}): delete it and the record to repeat the run") from error
