"""Patch accuracy versus patch uncertainty: is the model certain where it is right, and only there?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from contextual_dropout.metrics.inputs import check_per_example, check_unit_interval

__all__ = ["PAvPUCounts", "pavpu", "pavpu_counts"]


class PAvPUCounts(NamedTuple):
    """The number of predictions, or the sum of their accuracies, of each of four kinds; scalars in float64."""

    accurate_certain: Tensor
    accurate_uncertain: Tensor
    inaccurate_certain: Tensor
    inaccurate_uncertain: Tensor


def pavpu_counts(p_value: Tensor, correct: Tensor, threshold: float) -> PAvPUCounts:
    """n_ac, n_au, n_ic and n_iu of Section 3 of the paper, with the soft accuracies of its VQA experiments (C.2).

    ``n_ac = sum_i Acc_i Cer_i``, ``n_au = sum_i Acc_i (1 - Cer_i)``, ``n_ic = sum_i (1 - Acc_i) Cer_i`` and
    ``n_iu = sum_i (1 - Acc_i)(1 - Cer_i)`` with ``Cer_i = 1[p_i < threshold]``.

    Args:
        p_value: (B,).
        correct: (B,) bool, or soft accuracies in [0, 1].
        threshold: of the p-value, in [0, 1].

    Example:
        >>> counts = pavpu_counts(torch.tensor([0.01, 0.2, 0.2]), torch.tensor([True, True, False]), 0.05)
        >>> [count.item() for count in counts]
        [1.0, 1.0, 0.0, 1.0]
        >>> pavpu(counts)
        tensor(0.6667, dtype=torch.float64)
    """
    check_per_example("p_values", p_value, "correct", correct)
    check_unit_interval("p_values", p_value)
    check_unit_interval("correct", correct)
    accurate, certain = correct.double(), (p_value < threshold).double()
    return PAvPUCounts(
        accurate_certain=(accurate * certain).sum(),
        accurate_uncertain=(accurate * (1 - certain)).sum(),
        inaccurate_certain=((1 - accurate) * certain).sum(),
        inaccurate_uncertain=((1 - accurate) * (1 - certain)).sum(),
    )


def pavpu(counts: PAvPUCounts) -> Tensor:
    """``(n_ac + n_iu) / (n_ac + n_au + n_ic + n_iu)`` in [0, 1] (Section 3 of the paper); 0 without any example."""
    agree = counts.accurate_certain + counts.inaccurate_uncertain
    total = agree + counts.accurate_uncertain + counts.inaccurate_certain
    return torch.where(total > 0, agree / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)
