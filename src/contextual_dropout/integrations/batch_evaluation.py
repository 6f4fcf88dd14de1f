"""Evaluating a batch and its labels with K sampled passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.integrations.likelihoods import IGNORED
from contextual_dropout.metrics.pavpu import pavpu, pavpu_counts
from contextual_dropout.prediction.classification import MultilabelPrediction
from contextual_dropout.prediction.outputs import AnyPrediction, Task, find_logits, interpret
from contextual_dropout.prediction.predict import predict
from contextual_dropout.prediction.regression import RegressionPrediction

__all__ = ["BatchEvaluation", "arguments", "certainty", "evaluate"]


@dataclass(frozen=True)
class BatchEvaluation:
    """Predictions for a batch.

    Attributes:
        prediction: for R positions: the B examples, or all their positions where each has a distribution of its own.
        positions: their shape, (B,), or (B, T), (B, H, W): R is the product.
        log_likelihood: of the labels under the predictive distribution, log mean_k p(y | x, z_k), (B,); None without
            labels.
    """

    prediction: AnyPrediction
    positions: tuple[int, ...]
    log_likelihood: Tensor | None

    @property
    def logits(self) -> Tensor:
        """Logits of the predictive mean, (B, C) or (B, ..., C); for regression the mean itself."""
        prediction = self.prediction
        if isinstance(prediction, RegressionPrediction):
            return self._by_position(prediction.mean)
        values = _log_mean(prediction.log_probabilities)
        if isinstance(prediction, MultilabelPrediction):
            values = values - _log_mean(prediction.log_complements)
        else:
            values = _led_by(prediction.label, values)
        return self._by_position(values)

    @property
    def label(self) -> Tensor:
        """Classes, (B,) or (B, ...)."""
        assert not isinstance(self.prediction, RegressionPrediction)
        return self._by_position(self.prediction.label)

    @property
    def uncertainty(self) -> Tensor:
        """p-values (B,) or (B, ...); for regression the standard deviations over masks."""
        prediction = self.prediction
        values = prediction.std if isinstance(prediction, RegressionPrediction) else prediction.p_value
        return self._by_position(values)

    def _by_position(self, values: Tensor) -> Tensor:
        return values.reshape(*self.positions, *values.shape[1:])


def _log_mean(values: Tensor) -> Tensor:
    """log mean_k exp(values), (K, R, C) to (R, C); finite, as not every reader of logits knows infinity."""
    return (values.logsumexp(0) - math.log(len(values))).clamp_min(torch.finfo(values.dtype).min / 2)


def _led_by(label: Tensor, logits: Tensor) -> Tensor:
    """The logits (R, C), where the label is the first of the highest also if rounding made them equal."""
    most = logits.amax(-1, keepdim=True)
    first = logits.argmax(-1, keepdim=True) == label[:, None]
    return logits.scatter(
        -1, label[:, None], torch.where(first, most, torch.nextafter(most, most.new_tensor(math.inf)))
    )


def evaluate(
    model: nn.Module,
    inputs: Any,
    log_likelihood: Callable[[Any], Tensor] | None = None,
    *,
    samples: int,
    task: Task = "multiclass",
    generator: torch.Generator | None = None,
    arrange: Callable[[Tensor], Tensor] | None = None,
) -> BatchEvaluation:
    """Predict for a batch and score its labels, in the same K passes.

    Args:
        model: in any mode; its logits are found as :func:`contextual_dropout.predict` finds them.
        inputs: what it is called with: a mapping is passed as keywords, a tuple as positional arguments.
        log_likelihood: takes the outputs of a pass and returns (B,); None without labels.
        samples: K.
        task: what the logits mean.
        generator: on the CPU; advances.
        arrange: brings logits to (B, C) or (B, ..., C), those of a binary task to (B, ..., 1); by default it is assumed
            that they are in this shape.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        >>> evaluated = evaluate(model, torch.randn(5, 4), lambda logits: logits.log_softmax(-1)[:, 0], samples=7)
        >>> evaluated.prediction.samples.shape, evaluated.log_likelihood.shape
        (torch.Size([7, 5, 3]), torch.Size([5]))
    """
    shape: torch.Size = torch.Size()

    def both(outputs: Any) -> Tensor:
        """Logits and log-likelihood side by side, (B, 1 + ...): a pass has one output."""
        nonlocal shape
        logits = find_logits(outputs)
        if arrange is not None:
            logits = arrange(logits)
        shape = logits.shape
        score = logits.new_zeros(len(logits)) if log_likelihood is None else _checked(log_likelihood(outputs), logits)
        return torch.cat([score.unsqueeze(1), logits.reshape(len(logits), -1)], 1)

    positional, keywords = arguments(inputs)
    options: dict[str, Any] = {"samples": samples, "output": both, "generator": generator}
    raw = predict(model, *positional, task="regression", **options, **keywords).samples
    scores, logits = raw[..., 0], raw[..., 1:].reshape(len(raw), *shape)
    positions = shape[:1] if task == "regression" else shape[: max(1, len(shape) - 1)]
    prediction = interpret(logits.flatten(1, len(positions)), task, None)
    predictive = None if log_likelihood is None else scores.logsumexp(0) - math.log(len(scores))
    return BatchEvaluation(prediction, tuple(positions), predictive)


def _checked(scores: Tensor, logits: Tensor) -> Tensor:
    if not isinstance(scores, Tensor) or scores.shape != logits.shape[:1]:
        got = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else repr(scores)
        raise ValueError(
            f"log_likelihood must return one number for each of {len(logits)} examples, ({len(logits)},), got {got}: "
            "sum over an example's positions, not over examples"
        )
    return scores


def certainty(predicted: Tensor, p_value: Tensor, labels: Tensor, threshold: float = 0.05) -> dict[str, float]:
    """Accuracy, the share that is certain, and PAvPU, over all positions that have a label.

    Args:
        predicted: classes, of any shape.
        p_value: of the same shape.
        labels: of the same shape; positions labelled :data:`~contextual_dropout.integrations.likelihoods.IGNORED` do
            not count.
        threshold: certain is a p-value below it.

    Example:
        >>> certainty(torch.tensor([1, 1, 0]), torch.tensor([0.01, 0.3, 0.2]), torch.tensor([1, 0, -100]))
        {'accuracy': 0.5, 'certain': 0.5, 'pavpu': 1.0}
    """
    counted = labels != IGNORED
    correct, p_value = (predicted == labels)[counted], p_value[counted]
    if not len(correct):
        return {}
    return {
        "accuracy": correct.double().mean().item(),
        "certain": (p_value < threshold).double().mean().item(),
        "pavpu": pavpu(pavpu_counts(p_value, correct, threshold)).item(),
    }


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments and keywords: a mapping holds keywords, a tuple several arguments, anything else is one."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
