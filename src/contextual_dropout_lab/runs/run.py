"""One run, from its configuration to its record."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from contextual_dropout.conversion.record import sites
from contextual_dropout.inspection.parameters import count_parameters
from contextual_dropout.nn.encoder import GlobalLogits
from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.errors import ConfigError, ExperimentError, NotReady
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.contextuality import contextuality, drop_probabilities
from contextual_dropout_lab.runs.curves import curves_path, write_curves
from contextual_dropout_lab.runs.evaluation import Predictions, evaluate, noise_name, noisy_inputs, parts
from contextual_dropout_lab.runs.fabric import fabric_for, on_first
from contextual_dropout_lab.runs.run_data import Examples, load_examples
from contextual_dropout_lab.runs.seeds import derived_seed
from contextual_dropout_lab.runs.training import AFTER_DIVERGENCE, CHECKPOINT, Trained, train
from contextual_dropout_lab.store.files import remove_leftovers
from contextual_dropout_lab.store.networks import FILE, save_network
from contextual_dropout_lab.store.provenance import provenance
from contextual_dropout_lab.store.results import PREDICTIONS, Results

__all__ = ["missing_start", "run"]

#: The files that a run has in its folder.
FILES = (CHECKPOINT, FILE, PREDICTIONS)


def run(
    config: RunConfig,
    results: Results,
    data_directory: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] = lambda epoch: None,
) -> dict[str, Any]:
    """Train and evaluate unless that is done; the record is written and returned.

    Args:
        config: the run.
        results: where records, checkpoints, networks and predictions are.
        data_directory: where the data are, if not in the usual places.
        progress: is called with the number of epochs done.

    Returns:
        The record, on every one of the processes that train together.

    Raises:
        Busy: another process works on this run.
        ExperimentError: its training diverged, or its files are not what they should be.
    """
    fabric = fabric_for(config)
    directory = results.work / config.name
    with ExitStack() as stack:
        done = on_first(fabric, lambda: _begin(config, results, stack))
        if done is not None:
            return done
        provenance()  # of the code that begins
        if (missing := missing_start(config, results)) is not None:
            raise missing
        examples = load_examples(config, data_directory)
        trained = train(config, examples, directory, progress, weights=_start(config, results), fabric=fabric)
        return on_first(fabric, lambda: _measure(trained, config, results, examples))


def _begin(config: RunConfig, results: Results, stack: ExitStack) -> dict[str, Any] | None:
    """Lock the run, remove what killed processes left, and read the record if there is one."""
    directory = results.work / config.name
    stack.enter_context(results.locked(config.name))
    written = [results.path(config), curves_path(results, config), *(directory / name for name in FILES)]
    for path in (*written, results.network(config)):
        if path is not None:
            remove_leftovers(path)
    return results.read(config)


def _measure(trained: Trained, config: RunConfig, results: Results, examples: Examples) -> dict[str, Any]:
    """Evaluate; write network, predictions and their curves, and last the record, which marks the run as done."""
    directory = results.work / config.name
    evaluation, predictions = _evaluated(trained.model, config, examples)
    steps = config.epochs * -(-len(examples.x) // config.batch_size)
    record = {
        "config": config.to_dict(),
        "digest": config.digest,
        "provenance": {**provenance(), "commits": trained.commits},
        "data": {"sha256": examples.sha256, "train": len(examples.x), "test": len(examples.test_x)},
        **({"start": {"sha256": trained.start}} if trained.start else {}),
        "parameters": count_parameters(trained.model),
        "cost": {
            "train_cpu_seconds": round(trained.cpu_seconds, 3),
            "train_wall_seconds": round(trained.wall_seconds, 3),
            "step_cpu_ms": round(1e3 * trained.cpu_seconds / max(steps, 1), 4),
            "predict_cpu_ms_per_example": round(evaluation.pop("predict_ms_per_example"), 5),
        },
        "history": trained.history,
        **evaluation,
        **_of_sites(trained.model, config, examples, predictions),
    }
    shape = tuple(examples.x.shape[1:])
    save_network(directory, trained.model, config, shape, examples.classes)
    if (tracked := results.network(config)) is not None:
        save_network(tracked, trained.model, config, shape, examples.classes, torch.float16)
    results.write_predictions(config, predictions)
    write_curves(results, config, predictions[noise_name(config.noise_sd)], examples.test_y)
    results.write(config, record)
    return record


def _evaluated(model: nn.Module, config: RunConfig, examples: Examples) -> tuple[dict[str, Any], Predictions]:
    """All scores, which are finite numbers, and the predictions."""
    try:
        evaluation, predictions = evaluate(model, config, examples)
        json.dumps(evaluation, allow_nan=False)
    except (DataError, ExperimentError):
        raise
    except ValueError as error:
        raise ExperimentError(
            f"{config.name} is trained, but what it predicts has no scores ({error}): its training diverged, it "
            f"seems; {AFTER_DIVERGENCE}"
        ) from error
    return evaluation, predictions


def missing_start(config: RunConfig, results: Results) -> ExperimentError | None:
    """The error for a network to start from that is not there, or cannot be anywhere."""
    try:
        path = _start(config, results)
    except ConfigError as error:
        return error
    if config.start_from is None or path is None or path.exists():
        return None
    return NotReady(f"{config.name} starts from {path.parent}, which is not trained yet: do that run first")


def _start(config: RunConfig, results: Results) -> Path | None:
    """The place of the weights that the run begins with: a trained network, or a file that it names.

    Raises:
        ConfigError: the network is not given by the name of a run, or both are named.
    """
    template = config.start_from
    if template is None:
        return None if config.weights is None else Path(config.weights).expanduser()
    if config.weights is not None:
        raise ConfigError(f"{config.name} has both start_from and weights: it can begin with one of them only")
    name = template.replace("{experiment}", config.experiment).replace("{seed}", str(config.seed))
    if re.search(r"[{}\\\x00-\x1f]", name) or not all(part.strip(". ") for part in name.split("/")):
        raise ConfigError(
            f"start_from must be the name of a run, such as {config.experiment}/noisy/plain/seed-{{seed}}, with "
            f"{{experiment}} and {{seed}} for its own and no other braces, got {template!r}"
        )
    return results.work / name / FILE


def _of_sites(model: nn.Module, config: RunConfig, examples: Examples, predictions: Predictions) -> dict[str, Any]:
    """The values that only networks with sites have; from as many test examples as are predicted at a time."""
    found = sites(model)
    if not found:
        return {}
    noisy = next(noisy_inputs(examples.test_x, config.noise_sd, config))
    inputs = next(parts(noisy, examples.test_beside, config))
    x = tuple(each.to(next(model.parameters()).device) for each in inputs)
    y, label = examples.test_y[: len(x[0])], predictions[noise_name(config.noise_sd)][0].label[: len(x[0])]
    seed = derived_seed(config.seed, "prediction")
    result = {"drop_probabilities": drop_probabilities(model, x, y, label, seed, config.task)}
    if not any(isinstance(site.encoder, GlobalLogits) for site in found.values()):
        result["contextuality"] = contextuality(model, x, y, config.samples, seed, config.task)
    return result
