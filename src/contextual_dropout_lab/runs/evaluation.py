"""All scores of a trained network, at every noise level and on other data sets."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.metrics import double_softmax_log_likelihood, risk_coverage_curve
from contextual_dropout.metrics.calibration import expected_calibration_error
from contextual_dropout.metrics.ood import out_of_distribution
from contextual_dropout.metrics.pavpu import pavpu, pavpu_counts
from contextual_dropout.nn.stochastic import Stochastic
from contextual_dropout.prediction.classification import Classification
from contextual_dropout.prediction.loader import predict_loader
from contextual_dropout.prediction.predict import predict
from contextual_dropout_lab.data import noisy_copies
from contextual_dropout_lab.data.lookup import Lookup, noise_on_regions
from contextual_dropout_lab.data.noise import noise_generator
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.questions import QuestionExamples
from contextual_dropout_lab.runs.run_data import Examples, normaliser
from contextual_dropout_lab.runs.seeds import derived_seed
from contextual_dropout_lab.runs.tasks import task_named

__all__ = [
    "THRESHOLDS",
    "Predictions",
    "averaged",
    "evaluate",
    "is_stochastic",
    "noise_levels",
    "noise_name",
    "noisy_inputs",
    "parts",
    "point_labels",
    "sampled",
    "scores_of",
]

#: p-value thresholds of PAvPU.
THRESHOLDS = (0.01, 0.05, 0.1)
#: Which copies of the noisy test set every run is tested on.
TEST_NOISE_SEED = 0
#: Other data sets have noise and masks of their own.
OTHER_NOISE_SEED, OTHER_DRAW = 1, 1_000
#: Uncertainties of which a prediction has one per example.
SCORES: dict[str, Callable[[Classification], Tensor]] = {
    "p_value": lambda prediction: prediction.p_value,
    "entropy": lambda prediction: prediction.entropy,
    "mutual_information": lambda prediction: prediction.mutual_information,
}
Predictions = dict[str, list[Classification]]
#: A tensor (N, ...), or rows of a table.
Input = Tensor | Lookup


def is_stochastic(model: nn.Module) -> bool:
    """Whether passes differ: the model has dropout or other stochastic layers."""
    return any(
        isinstance(module, Stochastic) or (isinstance(module, _DropoutNd) and module.p > 0)
        for module in model.modules()
    )


def noise_name(sd: float) -> str:
    """The name of a noise level in results."""
    return f"noise-{sd:g}"


def noise_levels(config: RunConfig) -> list[float]:
    """The noise levels that a run is tested at: its own first."""
    return list(dict.fromkeys((config.noise_sd, *config.test_noise_sd)))


def evaluate(model: nn.Module, config: RunConfig, examples: Examples) -> tuple[dict[str, Any], Predictions]:
    """Predict the test set at every noise level, and other data sets, and compute all scores.

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
            prediction = sampled(model, x, config, draw, examples.test_beside)
            seconds += time.process_time() - start
            label = point_labels(model, x, config, examples.test_beside)
            point = task_named(config.task).accuracy(label, examples.test_y).mean().item()
            values = scores_of(prediction, examples.test_y, config.task)
            results.append({"point_accuracy": 100 * point, **values, **_by_group(prediction, examples, config.task)})
            predictions[noise_name(sd)].append(prediction)
        result["test"][noise_name(sd)] = averaged(results)
    predicted = sum(len(each) for each in predictions.values()) * len(examples.test_x)
    result["predict_ms_per_example"] = 1e3 * seconds / predicted
    inside = predictions[noise_name(config.noise_sd)][0]
    for name, x in examples.ood.items():
        noisy = next(noisy_inputs(x, config.noise_sd, config, OTHER_NOISE_SEED))
        result["ood"][name] = _detection(inside, sampled(model, noisy, config, OTHER_DRAW))
    if isinstance(examples, QuestionExamples) and examples.skipped:
        result["skipped"] = examples.skipped
    return result, predictions


def scores_of(prediction: Classification, targets: Tensor, task: str = "classification") -> dict[str, Any]:
    """Accuracy and PAvPU in percent, log-likelihoods in nats; what needs several samples is None for one."""
    correct = task_named(task).accuracy(prediction.label, targets)
    several = len(prediction.samples) > 1
    return {
        "accuracy": 100 * correct.mean().item(),
        "log_likelihood": task_named(task).predictive(prediction.samples, targets).mean().item(),
        **(_of_classes(prediction, targets) if task == "classification" else {}),
        "aurc_entropy": _aurc(prediction.entropy, correct),
        "aurc_p_value": _aurc(prediction.p_value, correct) if several else None,
        "pavpu": {f"{threshold:g}": _pavpu(prediction, correct, threshold) for threshold in THRESHOLDS if several},
    }


def _of_classes(prediction: Classification, labels: Tensor) -> dict[str, float]:
    """The scores that exist only for classes that exclude one another."""
    mean = prediction.mean
    one_hot = torch.nn.functional.one_hot(labels, mean.shape[1])
    return {
        "double_softmax_log_likelihood": double_softmax_log_likelihood(prediction.samples, labels).mean().item(),
        "brier": (mean - one_hot).square().sum(1).mean().item(),
        "calibration_error": 100 * expected_calibration_error(prediction.samples, labels).item(),
    }


def _by_group(prediction: Classification, examples: Examples, task: str) -> dict[str, Any]:
    """Accuracy in percent of every group of test examples, where there are groups."""
    if examples.test_groups is None:
        return {}
    correct = task_named(task).accuracy(prediction.label, examples.test_y)
    rows = {name: examples.test_groups == index for index, name in enumerate(examples.group_names)}
    return {"accuracy_by_group": {name: 100 * correct[row].mean().item() for name, row in rows.items() if row.any()}}


def averaged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of every score over draws of the noise, and the standard deviation of the accuracy between them."""
    mean: dict[str, Any] = _mean_of(results)
    accuracies = [result["accuracy"] for result in results]
    mean["accuracy_sd_over_noise"] = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return mean


def _mean_of(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {key: _mean_of([value[key] for value in values]) for key in values[0]}
    return None if values[0] is None else round(statistics.fmean(values), 6)


@torch.no_grad()
def point_labels(model: nn.Module, x: Input, config: RunConfig, beside: tuple[Tensor, ...] = ()) -> Tensor:
    """The labels of the point estimate, on the CPU."""
    device = next(model.parameters()).device
    labels = [model.eval()(*(each.to(device) for each in part)).argmax(1).cpu() for part in parts(x, beside, config)]
    return torch.cat(labels)


def noisy_inputs(x: Input, sd: float, config: RunConfig, seed: int | None = None) -> Iterator[Input]:
    """The fixed noisy copies of test inputs, as the network takes them."""
    normalise = normaliser(config)
    draws = config.noise_draws if sd > 0 else 1
    seed = TEST_NOISE_SEED if seed is None else seed
    if isinstance(x, Lookup):
        return (_NoisyLookup(x, sd, seed, draw) for draw in range(draws))
    return (normalise(copy) for copy in noisy_copies(x, sd, draws, seed))


class _NoisyLookup(Lookup):
    """Inputs with noise that depends on where a part begins: there may be too many to have all at once."""

    def __init__(self, lookup: Lookup, sd: float, seed: int, draw: int) -> None:
        super().__init__(lookup.table, lookup.rows)
        self.sd, self.seed, self.draw = sd, seed, draw

    def __getitem__(self, part: slice) -> Tensor:
        clean = super().__getitem__(part)
        return noise_on_regions(clean, self.sd, noise_generator(self.seed, self.draw, part.start)) if self.sd else clean


def parts(x: Input, beside: tuple[Tensor, ...], config: RunConfig) -> Iterator[tuple[Tensor, ...]]:
    """The arguments of the network, for as many examples as are predicted at a time."""
    size = config.test_batch_size or max(len(x), 1)
    for start in range(0, max(len(x), 1), size):
        part = slice(start, start + size)
        yield (x[part], *(each[part] for each in beside))


def sampled(
    model: nn.Module, x: Input, config: RunConfig, draw: int, beside: tuple[Tensor, ...] = ()
) -> Classification:
    """K samples, on the CPU and in double precision: in single, a confident network gives a label probability 0."""
    options: Any = {
        "samples": config.samples if is_stochastic(model) else 1,
        "task": "regression",
    }  # logits as they are
    seed = derived_seed(config.seed, "prediction", draw)
    batches = parts(x, beside, config)
    if config.test_batch_size is None:
        device = next(model.parameters()).device
        logits = predict(model, *(each.to(device) for each in next(batches)), seed=seed, **options).samples
    else:
        logits = predict_loader(model, batches, seed=seed, inputs=lambda part: part, **options).samples
    return task_named(config.task).prediction(logits.cpu().double())


def _aurc(uncertainty: Tensor, correct: Tensor) -> float:
    _, risk = risk_coverage_curve(uncertainty, correct)
    return risk.mean().item()


def _pavpu(prediction: Classification, correct: Tensor, threshold: float) -> dict[str, float]:
    counts = pavpu_counts(prediction.p_value, correct, threshold)
    return {"value": 100 * pavpu(counts).item(), **{name: count.item() for name, count in counts._asdict().items()}}


def _detection(inside: Classification, outside: Classification) -> dict[str, dict[str, float]]:
    """AUROC and FPR95 by every score, in percent."""
    several = len(inside.samples) > 1
    is_ood = torch.arange(len(inside) + len(outside)) >= len(inside)
    result = {}
    for name, score in SCORES.items():
        if not several and name != "entropy":
            continue
        found = out_of_distribution(torch.cat([score(inside), score(outside)]), is_ood)
        result[name] = {key: 100 * value.item() for key, value in found.items()}
    return result
