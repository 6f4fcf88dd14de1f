"""Records of runs: where they are, and how they are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.errors import ExperimentError
from contextual_dropout.experiments.files import read_json, replace_file, write_json
from contextual_dropout.prediction import Prediction

__all__ = ["PREDICTIONS", "Results"]

PREDICTIONS = "predictions.safetensors"


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

    def write_predictions(self, config: RunConfig, predictions: dict[str, list[Prediction]]) -> None:
        """Keep samples as log-probabilities in half precision, (K, N, C) for every noise level and draw."""
        tensors = {
            f"{name}/{draw}": prediction.samples.log().clamp_min(_SMALLEST).to(torch.float16)
            for name, draws in predictions.items()
            for draw, prediction in enumerate(draws)
        }
        with replace_file(self._predictions(config)) as temporary:
            save_file(tensors, temporary, {"digest": config.digest})

    def predictions(self, config: RunConfig) -> dict[str, Prediction] | None:
        """What exactly this run predicted, by "noise level/draw"; None where that was not kept."""
        path = self._predictions(config)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("digest") != config.digest:
                    return None
                kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
        except SafetensorError as error:
            raise ExperimentError(f"{path} is damaged ({error}): delete it and the record to repeat the run") from error
        return {name: Prediction(values.double().softmax(-1)) for name, values in kept.items()}

    def _predictions(self, config: RunConfig) -> Path:
        return self.work / config.name / PREDICTIONS


#: The logarithm of a probability that half precision still has.
_SMALLEST = -60_000.0
