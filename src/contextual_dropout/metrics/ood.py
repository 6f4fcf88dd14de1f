"""Detection of out-of-distribution examples by their uncertainty."""

from __future__ import annotations

import torch
from torch import Tensor

from contextual_dropout.metrics.inputs import check_per_example

__all__ = ["check_detection", "out_of_distribution"]


def out_of_distribution(uncertainty: Tensor, is_ood: Tensor) -> dict[str, Tensor]:
    """AUROC and FPR95 of the uncertainty as a detector; out-of-distribution is the positive class.

    ``auroc = P(u_out > u_in) + P(u_out = u_in) / 2``; ``fpr95`` is the share of in-distribution examples flagged by
    the highest threshold that flags at least 95% of the others (Hendrycks and Gimpel, 2017; not in the paper).

    Args:
        uncertainty: (N,), higher is less certain.
        is_ood: (N,) bool.

    Returns:
        ``{"auroc": scalar, "fpr95": scalar}`` in float64, both NaN without examples of both kinds.

    Example:
        >>> found = out_of_distribution(torch.tensor([0.1, 0.4, 0.3, 0.9]), torch.tensor([False, False, True, True]))
        >>> {name: value.item() for name, value in found.items()}
        {'auroc': 0.75, 'fpr95': 0.5}
    """
    check_detection(uncertainty, is_ood)
    _, level, size = torch.unique(uncertainty, return_inverse=True, return_counts=True)
    outside = torch.zeros(len(size), dtype=torch.float64, device=level.device).index_add(0, level, is_ood.double())
    inside = size - outside  # how many of each kind are at each of the levels, which ascend
    if not outside.any() or not inside.any():
        nan = torch.full((), torch.nan, dtype=torch.float64, device=level.device)
        return {"auroc": nan, "fpr95": nan}
    below = inside.cumsum(0) - inside
    auroc = (outside * (below + inside / 2)).sum() / (outside.sum() * inside.sum())
    tpr, fpr = (count.flip(0).cumsum(0) / count.sum() for count in (outside, inside))
    return {"auroc": auroc, "fpr95": fpr[tpr >= 0.95].min()}


def check_detection(uncertainty: Tensor, is_ood: Tensor) -> None:
    """Raise unless both are (N,), one a number and the other a bool for every example."""
    check_per_example("uncertainty", uncertainty, "is_ood", is_ood)
    if is_ood.dtype != torch.bool:
        raise ValueError(f"is_ood has dtype {is_ood.dtype}: expected bool; compare it with the label of OOD first")
