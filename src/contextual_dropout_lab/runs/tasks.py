"""The meaning of a network's outputs: one of several classes, or answers that people may agree on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from contextual_dropout.metrics import predictive_log_likelihood
from contextual_dropout.prediction.classification import Classification, MultilabelPrediction, Prediction
from contextual_dropout_lab.errors import ConfigError

__all__ = ["LEAST", "TASKS", "Task", "task_named"]


@dataclass(frozen=True)
class Task:
    """Targets are (B,) labels, or for soft answers (B, 2, S): S answers of each example and their accuracies.

    Attributes:
        log_likelihood: of logits (B, C) and targets, (B,); for training.
        prediction: of logits (K, B, C) in double precision; no probability of a class is 0, see :data:`LEAST`.
        logits: what of samples (K, B, C) gives them back; finite, and small enough for half precision.
        accuracy: of labels (B,) and targets, (B,) in [0, 1].
        predictive: log-likelihood (B,) of targets under probabilities averaged over samples (K, B, C).
    """

    log_likelihood: Callable[[Tensor, Tensor], Tensor]
    prediction: Callable[[Tensor], Classification]
    logits: Callable[[Tensor], Tensor]
    accuracy: Callable[[Tensor, Tensor], Tensor]
    predictive: Callable[[Tensor, Tensor], Tensor]


#: The least probability of a class: e^-708. Far from its data a network may have logits that are thousands apart, and a
#: label of probability 0 would make the mean log-likelihood of all examples minus infinity.
LEAST = torch.finfo(torch.float64).tiny
#: The logarithm of a probability that half precision still has.
_SMALLEST = -60_000.0


def soft_targets(answers: Tensor, count: int) -> Tensor:
    """The accuracy of each of ``count`` answers.

    Args:
        answers: (B, 2, S): indices, and their accuracies; entries with accuracy 0 fill up.
        count: C.

    Returns:
        (B, C).

    Example:
        >>> soft_targets(torch.tensor([[[2.0, 0.0, 0.0], [1.0, 0.3, 0.0]]]), 4)
        tensor([[0.3000, 0.0000, 1.0000, 0.0000]])
    """
    dense = answers.new_zeros(len(answers), count)
    return dense.scatter_add_(1, answers[:, 0].long(), answers[:, 1])


def _soft_accuracy(label: Tensor, answers: Tensor) -> Tensor:
    return ((answers[:, 0].long() == label.unsqueeze(1)) * answers[:, 1]).sum(1)


def _binary(probabilities: Tensor, targets: Tensor) -> Tensor:
    """sum_c t log p + (1 - t) log(1 - p)."""
    p = probabilities.clamp(1e-12, 1 - 1e-12)
    return (targets * p.log() + (1 - targets) * (1 - p).log()).sum(-1)


TASKS = {
    "classification": Task(
        log_likelihood=lambda logits, y: -F.cross_entropy(logits, y, reduction="none"),
        prediction=lambda logits: Prediction(logits.softmax(-1).clamp_min(LEAST)),
        logits=lambda samples: samples.log().clamp_min(_SMALLEST),
        accuracy=lambda label, y: (label == y).double(),
        predictive=predictive_log_likelihood,
    ),
    "soft-answers": Task(
        log_likelihood=lambda logits, y: (
            -F.binary_cross_entropy_with_logits(
                logits, soft_targets(y, logits.shape[-1]).to(logits.dtype), reduction="none"
            ).sum(-1)
        ),
        prediction=lambda logits: MultilabelPrediction(logits.sigmoid()),
        logits=lambda samples: samples.logit().clamp(_SMALLEST, -_SMALLEST),
        accuracy=lambda label, y: _soft_accuracy(label, y).double(),
        predictive=lambda samples, y: _binary(samples.mean(0), soft_targets(y, samples.shape[-1]).to(samples.dtype)),
    ),
}


def task_named(name: str) -> Task:
    """The task that a configuration names."""
    if name not in TASKS:
        raise ConfigError(f"unknown task {name!r}: expected one of {', '.join(TASKS)}")
    return TASKS[name]
