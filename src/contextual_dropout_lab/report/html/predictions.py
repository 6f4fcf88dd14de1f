"""Predictions that runs have stored, brought together with the labels of the test set."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.locations import find
from contextual_dropout_lab.data.sources import CIFAR, SOURCES
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.report.plots.style import NoData
from contextual_dropout_lab.report.summary import Runs
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.curves import Curves, curves_of, read_curves, require_numbers
from contextual_dropout_lab.runs.questions import QUESTION_DATA
from contextual_dropout_lab.runs.run_data import Examples, load_examples
from contextual_dropout_lab.runs.tasks import task_named
from contextual_dropout_lab.store.results import PREDICTIONS, Results

__all__ = ["GalleryPredictions", "StoredPredictions", "config_of", "have_predictions", "read_stored", "tested_on"]


@dataclass(frozen=True, eq=False)
class GalleryPredictions:
    """The predictions whose examples the gallery shows: the first draw of the first seed that has them stored.

    Attributes:
        seed: of the run.
        prediction: of N examples.
        correct: (N,), 1 or 0; between them for soft answers.
    """

    seed: int
    prediction: Classification
    correct: Tensor


@dataclass(frozen=True, eq=False)
class StoredPredictions:
    """The predictions of one method.

    Attributes:
        method: e.g. "concrete".
        label: its name in print.
        seeds: of which the curves are known.
        curves: of all these and all draws of the test noise.
        predicted: None where no predictions are kept, but only their curves.
    """

    method: str
    label: str
    seeds: list[int]
    curves: Curves
    predicted: GalleryPredictions | None = None


def config_of(runs: Runs) -> RunConfig:
    """The configuration of the first seed."""
    return RunConfig.from_dict(runs.first["config"])


def have_predictions(results: Results, runs: Iterable[Runs]) -> bool:
    """Whether any of the runs left a file of predictions, sound or not; it is not read."""
    configs = (RunConfig.from_dict(record["config"]) for each in runs for record in each.records.values())
    return any((results.work / config.name / PREDICTIONS).exists() for config in configs)


def tested_on(config: RunConfig, directory: Path | None) -> Examples:
    """The test examples of a run. Nothing is fetched for them.

    Raises:
        NoData: they are not on this machine, or cannot be read.
    """
    fetched = config.data in (*SOURCES, *CIFAR)
    if fetched and not all(find(config.data, split, directory) for split in {"train", config.split} - {"validation"}):
        raise NoData(
            f"the data set {config.data} is not on this machine: name its folder with --data, or get it with "
            f"`contextual-dropout data {config.data}`"
        )
    count = config.train_examples if config.data in QUESTION_DATA else 0  # words come from training questions
    try:
        return load_examples(dataclasses.replace(config, ood=(), train_examples=count), directory)
    except (DataError, ExperimentError) as error:
        raise NoData(f"the data set {config.data} cannot be read: {str(error).splitlines()[0]}") from error


def read_stored(
    results: Results, runs: Runs, examples: Examples | None, noise: str, notes: list[str]
) -> StoredPredictions | None:
    """The curves of a method's runs at a noise level: stored beside their records, or made from their predictions.

    Args:
        results: where records and predictions are.
        runs: of the method.
        examples: what they were tested on; predictions cannot be used without.
        noise: the name of the level.
        notes: for what cannot be used, and why.

    Returns:
        None if there is nothing.
    """
    seeds: list[int] = []
    curves: list[Curves] = []
    predicted: GalleryPredictions | None = None
    for seed, record in runs.records.items():
        config, found = RunConfig.from_dict(record["config"]), None
        try:
            found = read_curves(results, config)
            if found is None or predicted is None:  # predictions are large, and read only if they must be
                draws, targets = _draws(results, record, examples, noise)
                if draws:
                    found = found or curves_of(draws, targets, config.task)
                    right = task_named(config.task).accuracy(draws[0].label, targets)
                    predicted = predicted or GalleryPredictions(seed, draws[0], right)
        except (ExperimentError, NoData) as reason:
            notes.append(f"{runs.label}, seed {seed}, is left out of {_where(found)}: {reason}.")
        if found is not None:
            seeds.append(seed)
            curves.append(found)
    return (
        StoredPredictions(runs.method, runs.label, seeds, functools.reduce(operator.add, curves), predicted)
        if curves
        else None
    )


def _where(found: Curves | None) -> str:
    return "the gallery" if found else "the plots of predictions and the gallery"


def _draws(
    results: Results, record: dict[str, Any], examples: Examples | None, noise: str
) -> tuple[list[Classification], Tensor]:
    """The predictions of a run, one for each draw of the noise, and what they should have been."""
    config = RunConfig.from_dict(record["config"])
    kept = {} if examples is None else results.predictions(config) or {}
    draws = [prediction for name, prediction in kept.items() if name.startswith(f"{noise}/")]
    if examples is None or not draws:
        return [], torch.empty(0)
    if record["data"]["sha256"].get(config.split) != examples.sha256.get(config.split):
        raise NoData(f"it was tested on other examples than those of {config.data} here")
    require_numbers(draws)
    return draws, examples.test_y
