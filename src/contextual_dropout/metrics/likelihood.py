"""The log-likelihood of the averaged prediction, as it is and as the paper prints it."""

from __future__ import annotations

import torch
from torch import Tensor

from contextual_dropout.metrics.inputs import check_labels, check_probabilities

__all__ = ["double_softmax_log_likelihood", "predictive_log_likelihood"]


def predictive_log_likelihood(samples: Tensor, labels: Tensor) -> Tensor:
    """The log of the averaged probability of the label.

    ``log (1/K) sum_k p_k[y]`` in nats: the Monte Carlo form of log p(y | x, data) (Section 2.5 of the paper).

    Args:
        samples: (K, B, C) probabilities.
        labels: (B,) class indices.

    Returns:
        (B,) in float64; -inf where every pass gives the label probability zero.

    Example:
        >>> samples = torch.tensor([[[0.9, 0.1]], [[0.7, 0.3]]])
        >>> predictive_log_likelihood(samples, torch.tensor([0])).exp()
        tensor([0.8000], dtype=torch.float64)
    """
    return _pick(_mean(samples), labels).log()


def double_softmax_log_likelihood(samples: Tensor, labels: Tensor) -> Tensor:
    """The paper's convention, only for comparison with its tables: a softmax of what already are probabilities.

    ``log softmax((1/K) sum_k p_k)[y]`` in nats. It is not a log-likelihood of the model: a perfect classifier has
    ``1 - log(e + C - 1)``, -1.461 for C = 10, and no classifier can have more.

    Args:
        samples: (K, B, C) probabilities.
        labels: (B,) class indices.

    Returns:
        (B,) in float64.

    Example:
        >>> double_softmax_log_likelihood(torch.eye(10)[None], torch.arange(10)).mean()
        tensor(-1.4612, dtype=torch.float64)
    """
    return _pick(_mean(samples).log_softmax(-1), labels)


def _mean(samples: Tensor) -> Tensor:
    check_probabilities(samples)
    return samples.mean(0, dtype=torch.float64)  # (B, C)


def _pick(values: Tensor, labels: Tensor) -> Tensor:
    check_labels(labels, *values.shape)
    return values.gather(-1, labels.long()[:, None]).squeeze(-1)  # (B,)
