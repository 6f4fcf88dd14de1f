"""The log-likelihood of the averaged prediction, as it is and as the paper prints it."""

from __future__ import annotations

import math

from torch import Tensor

from contextual_dropout.metrics.inputs import check_labels, check_probabilities
from contextual_dropout.prediction.classification import Classification
from contextual_dropout.significance import mean_probability

__all__ = ["double_softmax_log_likelihood", "predictive_log_likelihood"]


def predictive_log_likelihood(prediction: Classification | Tensor, labels: Tensor) -> Tensor:
    """The log of the averaged probability of the label.

    ``log (1/K) sum_k p_k[y]`` in nats: the Monte Carlo form of log p(y | x, data) (Section 2.5 of the paper).

    Args:
        prediction: what :func:`contextual_dropout.predict` returned, which knows the logarithms of probabilities too
            small for a floating-point number; or (K, B, C) probabilities.
        labels: (B,) class indices.

    Returns:
        (B,) in float64; -inf where every pass gives the label probability zero.

    Example:
        >>> import torch
        >>> from contextual_dropout import Prediction
        >>> samples = torch.tensor([[[0.9, 0.1]], [[0.7, 0.3]]])
        >>> predictive_log_likelihood(samples, torch.tensor([0])).exp()
        tensor([0.8000], dtype=torch.float64)
        >>> surely_wrong = Prediction.from_logits(torch.tensor([[[200.0, 0.0]]]))
        >>> predictive_log_likelihood(surely_wrong, torch.tensor([1]))
        tensor([-200.], dtype=torch.float64)
    """
    if not isinstance(prediction, Classification):
        return _pick(_mean(prediction), labels).log()
    of_label = _pick(prediction.log_probabilities, labels).double()  # (K, B)
    return of_label.logsumexp(0) - math.log(len(of_label))


def double_softmax_log_likelihood(prediction: Classification | Tensor, labels: Tensor) -> Tensor:
    """The paper's convention, only for comparison with its tables: a softmax of what already are probabilities.

    ``log softmax((1/K) sum_k p_k)[y]`` in nats. It is not a log-likelihood of the model: a perfect classifier has
    ``1 - log(e + C - 1)``, -1.461 for C = 10, and no classifier can have more.

    Args:
        prediction: what :func:`contextual_dropout.predict` returned, or (K, B, C) probabilities.
        labels: (B,) class indices.

    Returns:
        (B,) in float64.

    Example:
        >>> import torch
        >>> double_softmax_log_likelihood(torch.eye(10)[None], torch.arange(10)).mean()
        tensor(-1.4612, dtype=torch.float64)
    """
    return _pick(_mean(prediction).log_softmax(-1), labels)


def _mean(prediction: Classification | Tensor) -> Tensor:
    samples = prediction.samples if isinstance(prediction, Classification) else prediction
    check_probabilities(samples)
    return mean_probability(samples)  # (B, C)


def _pick(values: Tensor, labels: Tensor) -> Tensor:
    """The values at the labels, (..., B, C) to (..., B)."""
    check_labels(labels, *values.shape[-2:])
    index = labels.long().unsqueeze(-1).expand(*values.shape[:-1], 1)
    return values.gather(-1, index).squeeze(-1)
