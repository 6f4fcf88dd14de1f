"""All figures of a trained network, at every noise level and on other data sets."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torchmetrics.functional.classification import multiclass_calibration_error

from contextual_dropout.data import noisy_copies
from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.examples import Examples, normaliser
from contextual_dropout.experiments.seeds import derived_seed
from contextual_dropout.metrics import (
    OutOfDistribution,
    PAvPU,
    RiskCoverage,
    double_softmax_log_likelihood,
    predictive_log_likelihood,
)
from contextual_dropout.predict import predict
from contextual_dropout.prediction import Prediction
from contextual_dropout.stochastic import Stochastic
from contextual_dropout.streaming import predict_loader

__all__ = [
    "THRESHOLDS",
    "Predictions",
    "averaged",
    "evaluate",
    "figures",
    "is_stochastic",
    "noise_levels",
    "noise_name",
]

#: p-value thresholds of PAvPU.
THRESHOLDS = (0.01, 0.05, 0.1)
#: Which copies of the noisy test set every run is tested on.
TEST_NOISE_SEED = 0
#: Other data sets have noise and masks of their own.
OTHER_NOISE_SEED, OTHER_DRAW = 1, 1_000
#: Uncertainties of which a prediction has one per example.
SCORES: dict[str, Callable[[Prediction], Tensor]] = {
    "p_value": lambda prediction: prediction.p_value,
    "entropy": lambda prediction: prediction.entropy,
    "mutual_information": lambda prediction: prediction.mutual_information,
}
Predictions = dict[str, list[Prediction]]


def is_stochastic(model: nn.Module) -> bool:
    """Whether passes differ: the model has dropout or other stochastic layers."""
    return any(
        isinstance(module, Stochastic) or (isinstance(module, _DropoutNd) and module.p > 0)
        for module in model.modules()
    )


def noise_name(sd: float) -> str:
    """How results call a noise level."""
    return f"noise-{sd:g}"


def noise_levels(config: RunConfig) -> list[float]:
    """Those that a run is tested at: its own first."""
    return list(dict.fromkeys((config.noise_sd, *config.test_noise_sd)))


def evaluate(model: nn.Module, config: RunConfig, examples: Examples) -> tuple[dict[str, Any], Predictions]:
    """Predict the test set at every noise level, and other data sets, and take all figures.

    Returns:
        Plain values for the record of the run, and the predictions by noise level, one for each draw of the noise.
    """
    predictions: Predictions = {}
    result: dict[str, Any] = {"test": {}, "ood": {}}
    seconds = 0.0
    for sd in noise_levels(config):
        results = []
        predictions[noise_name(sd)] = []
        for draw, x in enumerate(noisy_inputs(examples.test_x, sd, config)):
            start = time.process_time()
            prediction = sampled(model, x, config, draw)
            seconds += time.process_time() - start
            point = (point_labels(model, x, config) == examples.test_y).double().mean().item()
            results.append({"point_accuracy": 100 * point, **figures(prediction, examples.test_y)})
            predictions[noise_name(sd)].append(prediction)
        result["test"][noise_name(sd)] = averaged(results)
    predicted = sum(len(each) for each in predictions.values()) * len(examples.test_x)
    result["predict_ms_per_example"] = 1e3 * seconds / predicted
    inside = predictions[noise_name(config.noise_sd)][0]
    for name, x in examples.ood.items():
        noisy = next(noisy_inputs(x, config.noise_sd, config, OTHER_NOISE_SEED))
        result["ood"][name] = _detection(inside, sampled(model, noisy, config, OTHER_DRAW))
    return result, predictions


def figures(prediction: Prediction, labels: Tensor) -> dict[str, Any]:
    """Accuracy and PAvPU in percent, log-likelihoods in nats; what needs several samples is None without them."""
    correct = prediction.label == labels
    samples, mean = prediction.samples, prediction.mean
    one_hot = torch.nn.functional.one_hot(labels, mean.shape[1])
    values: dict[str, Any] = {
        "accuracy": 100 * correct.double().mean().item(),
        "log_likelihood": predictive_log_likelihood(samples, labels).mean().item(),
        "double_softmax_log_likelihood": double_softmax_log_likelihood(samples, labels).mean().item(),
        "brier": (mean - one_hot).square().sum(1).mean().item(),
        "calibration_error": 100 * multiclass_calibration_error(mean, labels, mean.shape[1], n_bins=15).item(),
        "aurc_entropy": _aurc(prediction.entropy, correct),
    }
    several = len(samples) > 1
    values["aurc_p_value"] = _aurc(prediction.p_value, correct) if several else None
    values["pavpu"] = {f"{threshold:g}": _pavpu(prediction, correct, threshold) for threshold in THRESHOLDS if several}
    return values


def averaged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of every figure over draws of the noise, and the standard deviation of the accuracy between them."""
    mean: dict[str, Any] = _mean_of(results)
    accuracies = [result["accuracy"] for result in results]
    mean["accuracy_sd_over_noise"] = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return mean


def _mean_of(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {key: _mean_of([value[key] for value in values]) for key in values[0]}
    return None if values[0] is None else round(statistics.fmean(values), 6)


@torch.no_grad()
def point_labels(model: nn.Module, x: Tensor, config: RunConfig) -> Tensor:
    """The labels of the point estimate, on the CPU."""
    device = next(model.parameters()).device
    parts = torch.split(x, config.test_batch_size or max(len(x), 1))
    return torch.cat([model.eval()(part.to(device)).argmax(1).cpu() for part in parts])


def noisy_inputs(x: Tensor, sd: float, config: RunConfig, seed: int | None = None) -> Iterator[Tensor]:
    """The fixed noisy copies of test inputs, as the network takes them."""
    normalise = normaliser(config)
    draws = config.noise_draws if sd > 0 else 1
    return (normalise(copy) for copy in noisy_copies(x, sd, draws, TEST_NOISE_SEED if seed is None else seed))


def sampled(model: nn.Module, x: Tensor, config: RunConfig, draw: int) -> Prediction:
    """K samples, on the CPU and in double precision: in single, a confident network gives a label probability 0."""
    options: Any = {
        "samples": config.samples if is_stochastic(model) else 1,
        "task": "regression",
    }  # logits as they are
    seed = derived_seed(config.seed, "prediction", draw)
    if config.test_batch_size is None:
        logits = predict(model, x.to(next(model.parameters()).device), seed=seed, **options).samples
    else:
        logits = predict_loader(model, torch.split(x, config.test_batch_size), seed=seed, **options).samples
    return Prediction(logits.cpu().double().softmax(-1))


def _aurc(uncertainty: Tensor, correct: Tensor) -> float:
    metric = RiskCoverage()
    metric.update(uncertainty, correct)
    return metric.compute().item()


def _pavpu(prediction: Prediction, correct: Tensor, threshold: float) -> dict[str, float]:
    metric = PAvPU(threshold)
    metric.update(prediction.p_value, correct)
    counts = ("accurate_certain", "accurate_uncertain", "inaccurate_certain", "inaccurate_uncertain")
    return {"value": 100 * metric.compute().item(), **{name: getattr(metric, name).item() for name in counts}}


def _detection(inside: Prediction, outside: Prediction) -> dict[str, dict[str, float]]:
    """AUROC and FPR95 by every score, in percent."""
    several = len(inside.samples) > 1
    result = {}
    for name, score in SCORES.items():
        if not several and name != "entropy":
            continue
        metric = OutOfDistribution()
        metric.update(score(inside), torch.zeros(len(inside), dtype=torch.bool))
        metric.update(score(outside), torch.ones(len(outside), dtype=torch.bool))
        result[name] = {key: 100 * value.item() for key, value in metric.compute().items()}
    return result
