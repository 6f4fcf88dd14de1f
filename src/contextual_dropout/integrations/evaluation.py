"""What K sampled passes say of a batch and of its labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.integrations.likelihoods import IGNORED
from contextual_dropout.metrics.pavpu import pavpu, pavpu_counts
from contextual_dropout.outputs import find_logits
from contextual_dropout.predict import predict
from contextual_dropout.prediction import MultilabelPrediction
from contextual_dropout.regression import RegressionPrediction
from contextual_dropout.tasks import AnyPrediction, Task, interpret

__all__ = ["Evaluated", "arguments", "certainty", "evaluate"]


@dataclass(frozen=True)
class Evaluated:
    """Predictions for a batch.

    Attributes:
        prediction: of R positions: the B examples, or their B T tokens where each has a distribution of its own.
        positions: (B,) or (B, T).
        log_likelihood: of the labels under the predictive distribution, log mean_k p(y | x, z_k), (B,); None without
            labels.
    """

    prediction: AnyPrediction
    positions: tuple[int, ...]
    log_likelihood: Tensor | None

    @property
    def logits(self) -> Tensor:
        """Whose softmax (or sigmoid) is the predictive mean, (B, C) or (B, T, C); of a regression the mean itself."""
        mean = self.prediction.mean
        smallest = torch.finfo(mean.dtype).tiny  # of which the logarithm is finite
        if isinstance(self.prediction, MultilabelPrediction):
            mean = mean.logit(smallest)
        elif not isinstance(self.prediction, RegressionPrediction):
            mean = mean.clamp_min(smallest).log()
        return mean.reshape(*self.positions, *mean.shape[1:])

    @property
    def uncertainty(self) -> Tensor:
        """p-values (B,) or (B, T); of a regression the standard deviations over masks."""
        prediction = self.prediction
        values = prediction.std if isinstance(prediction, RegressionPrediction) else prediction.p_value
        return values.reshape(*self.positions, *values.shape[1:])


def evaluate(
    model: nn.Module,
    inputs: Any,
    log_likelihood: Callable[[Any], Tensor] | None = None,
    *,
    samples: int,
    task: Task = "multiclass",
    generator: torch.Generator | None = None,
) -> Evaluated:
    """Predict for a batch and score its labels, in the same K passes.

    Args:
        model: in any mode; its logits are found as :func:`contextual_dropout.predict` finds them.
        inputs: what it is called with: a mapping is passed as keywords, a tuple as positional arguments.
        log_likelihood: of a pass's outputs, (B,); None if there are no labels.
        samples: K.
        task: what the logits mean.
        generator: on the CPU; advances.

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
        shape = logits.shape
        score = logits.new_zeros(len(logits)) if log_likelihood is None else log_likelihood(outputs)
        return torch.cat([score.unsqueeze(1), logits.reshape(len(logits), -1)], 1)

    positional, keywords = arguments(inputs)
    options: dict[str, Any] = {"samples": samples, "output": both, "generator": generator}
    raw = predict(model, *positional, task="regression", **options, **keywords).samples
    scores, logits = raw[..., 0], raw[..., 1:].reshape(len(raw), *shape)
    positions = shape[:-1] if task in ("multiclass", "multilabel") else shape[:1]
    prediction = interpret(logits.flatten(1, len(positions)), task, None)
    predictive = None if log_likelihood is None else scores.logsumexp(0) - math.log(len(scores))
    return Evaluated(prediction, tuple(positions), predictive)


def certainty(predicted: Tensor, p_value: Tensor, labels: Tensor, threshold: float = 0.05) -> dict[str, float]:
    """Accuracy, the share that is certain, and PAvPU, over all positions that have a label.

    Args:
        predicted: classes, of any shape.
        p_value: alike.
        labels: alike; positions with :data:`~contextual_dropout.integrations.likelihoods.IGNORED` do not count.
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
    """Positional arguments and keywords: a mapping are keywords, a tuple is several, anything else one."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
