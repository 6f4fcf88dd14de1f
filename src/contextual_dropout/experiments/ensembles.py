"""Deep ensembles of trained runs, from the predictions that they kept."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.evaluation import averaged, figures, noise_name
from contextual_dropout.experiments.examples import load_examples
from contextual_dropout.experiments.results import Results
from contextual_dropout.prediction import Prediction

__all__ = ["ensemble", "ensemble_records"]

_FIGURES = ("accuracy", "log_likelihood", "calibration_error")


def ensemble_records(configs: Iterable[RunConfig], results: Results, data_directory: Any = None) -> list[str]:
    """Write ``ensemble.json`` beside the records of every setting and method whose runs kept their predictions.

    Args:
        configs: the runs; those of one setting and method are the members.
        results: where records and predictions are.
        data_directory: where the data are, if not in the usual places.

    Returns:
        The names, experiment/setting/method, that were written.
    """
    written = []
    for name, group in itertools.groupby(sorted(configs, key=_group), key=_group):
        done = [config for config in group if results.read(config) is not None]
        members = {config.seed: results.predictions(config.name) for config in done}
        kept = {seed: samples for seed, samples in members.items() if samples is not None}
        if not kept:
            continue
        config = done[0]
        labels = load_examples(config, data_directory).test_y
        noise = noise_name(config.noise_sd)
        draws = [key for key in next(iter(kept.values())) if key.startswith(f"{noise}/")]
        results.write_ensemble(
            config,
            {
                "noise": noise,
                "total_samples": config.samples,
                "seeds": list(kept),
                "members": {
                    str(size): _of_size([[samples[draw] for draw in draws] for samples in kept.values()], size, labels)
                    for size in range(1, len(kept) + 1)
                },
            },
        )
        written.append(name)
    return written


def ensemble(members: list[Tensor]) -> Tensor:
    """Samples (K, N, C) of an ensemble: the first K // M of each of M members, so that K is as for one network.

    Example:
        >>> ensemble([torch.rand(20, 5, 3)] * 4).shape
        torch.Size([20, 5, 3])
    """
    share = max(1, len(members[0]) // len(members))
    return torch.cat([samples[:share] for samples in members]).float()


def _of_size(members: list[list[Tensor]], size: int, labels: Tensor) -> dict[str, Any]:
    """The mean over all ensembles of this size, and their standard deviation in accuracy."""
    results = []
    for chosen in itertools.combinations(members, size):
        by_draw = [figures(_prediction(ensemble(list(samples))), labels) for samples in zip(*chosen, strict=True)]
        results.append(averaged(by_draw))
    mean: dict[str, Any] = {name: statistics.fmean(result[name] for result in results) for name in _FIGURES}
    mean["pavpu"] = {
        threshold: statistics.fmean(result["pavpu"][threshold]["value"] for result in results)
        for threshold in results[0]["pavpu"]
    } or None
    accuracies = [result["accuracy"] for result in results]
    mean["accuracy_sd"] = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return {"subsets": len(results), **mean}


def _prediction(samples: Tensor) -> Prediction:
    """Half precision lost the sum of one; a prediction is of probabilities."""
    return Prediction(samples / samples.sum(-1, keepdim=True))


def _group(config: RunConfig) -> str:
    return f"{config.experiment}/{config.setting}/{config.method}"
