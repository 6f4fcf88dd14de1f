"""Selective prediction: the error that is left when the most uncertain examples are refused."""

from __future__ import annotations

import torch
from torch import Tensor

from contextual_dropout.metrics.inputs import check_per_example, check_unit_interval

__all__ = ["risk_coverage_curve"]


def risk_coverage_curve(uncertainty: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """The risk of the k least uncertain examples for every k (Geifman and El-Yaniv, 2017; not in the paper).

    ``risk(k/N) = (1/k) sum_{i <= k} (1 - Acc_(i))``, sorted by ascending uncertainty. Examples of equal uncertainty
    all count with their mean accuracy: the risk is its expectation over the orders of the tie, so the order of
    the examples plays no part.

    Args:
        uncertainty: (N,), higher is less certain.
        correct: (N,) bool, or soft accuracies in [0, 1].

    Returns:
        coverage (N,) and risk (N,), in float64.

    Example:
        >>> coverage, risk = risk_coverage_curve(torch.tensor([0.1, 0.9]), torch.tensor([True, False]))
        >>> coverage.tolist(), risk.tolist()
        ([0.5, 1.0], [0.0, 0.5])
    """
    check_per_example("uncertainty", uncertainty, "correct", correct)
    check_unit_interval("correct", correct)
    _, level, size = torch.unique(uncertainty, return_inverse=True, return_counts=True)
    loss = torch.zeros(len(size), dtype=torch.float64, device=level.device).index_add(0, level, 1 - correct.double())
    count = torch.arange(1, len(level) + 1, dtype=torch.float64, device=level.device)
    risk = (loss / size).repeat_interleave(size).cumsum(0) / count
    return count / len(level), risk
