"""The calibration error: whether the network is right as often as it says."""

from __future__ import annotations

import torch
from torch import Tensor

from contextual_dropout.metrics.inputs import check_labels, check_probabilities
from contextual_dropout.significance import mean_probability

__all__ = ["expected_calibration_error"]


def expected_calibration_error(samples: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """The difference between confidence and accuracy, in bins of equal width (Guo et al., 2017; not in the paper).

    ``ECE = sum_b (n_b / N) |acc_b - conf_b| = (1/N) sum_b |sum_{i in b} (Acc_i - max_c p_i[c])|`` with
    ``p = (1/K) sum_k p_k``. As in torchmetrics, confidences are rounded to float32 before they are put into bins, a bin
    contains its lower end, and a confidence of one has a bin of its own. The values are those of torchmetrics, without
    the seconds that its import takes.

    Args:
        samples: (K, B, C) probabilities.
        labels: (B,) class indices.
        bins: how many there are below a confidence of one.

    Returns:
        A scalar in float64; NaN without examples.

    Example:
        >>> samples = torch.tensor([[[0.75, 0.25], [0.75, 0.25]]])
        >>> expected_calibration_error(samples, torch.tensor([0, 1]))
        tensor(0.2500, dtype=torch.float64)
    """
    if bins < 1:
        raise ValueError(f"there must be at least one bin, got {bins}")
    check_probabilities(samples)
    mean = mean_probability(samples)  # (B, C)
    check_labels(labels, *mean.shape)
    confidence, label = mean.max(1)
    confidence = confidence.float()
    edges = torch.linspace(0, 1, bins + 1, device=mean.device)
    index = torch.bucketize(confidence, edges, right=True) - 1
    gap = torch.zeros(bins + 1, dtype=torch.float64, device=mean.device)
    return gap.index_add(0, index, (label == labels).double() - confidence.double()).abs().sum() / len(labels)
