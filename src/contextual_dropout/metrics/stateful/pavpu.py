"""PAvPU over many batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from contextual_dropout.metrics.inputs import check_probabilities
from contextual_dropout.metrics.pavpu import PAvPUCounts, pavpu, pavpu_counts
from contextual_dropout.significance import TwoSampleTest, paired_t, top_two_p_value

__all__ = ["PAvPU"]


class PAvPU(Metric):
    """The share of predictions that are accurate and certain or inaccurate and uncertain.

    ``PAvPU = (n_ac + n_iu) / (n_ac + n_au + n_ic + n_iu)`` (Section 3 of the paper), with the soft accuracies of its
    VQA experiments (C.2): ``n_ac = sum_i Acc_i Cer_i``, ``n_iu = sum_i (1 - Acc_i)(1 - Cer_i)``,
    ``n_au = sum_i Acc_i (1 - Cer_i)``, ``n_ic = sum_i (1 - Acc_i) Cer_i`` and ``Cer_i = 1[p_i < threshold]``. The four
    counts are attributes. Before any example ``compute()`` is 0.

    Args:
        threshold: of the p-value, in [0, 1].
        test: the test between the two leading classes where samples are given.
        kwargs: options of :class:`torchmetrics.Metric`.

    Example:
        >>> metric = PAvPU(threshold=0.05)
        >>> metric.update(torch.tensor([0.01, 0.01, 0.20, 0.20]), torch.tensor([True, False, True, False]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
        >>> metric.accurate_certain
        tensor(1., dtype=torch.float64)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    accurate_certain: Tensor
    accurate_uncertain: Tensor
    inaccurate_certain: Tensor
    inaccurate_uncertain: Tensor

    def __init__(self, threshold: float = 0.05, test: TwoSampleTest = paired_t, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold is {threshold}: expected a p-value in [0, 1], the paper takes 0.05")
        self.threshold = threshold
        self.test = test
        for count in PAvPUCounts._fields:
            # float32 would stop counting at 2^24 examples.
            self.add_state(count, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, samples_or_p_values: Tensor, correct: Tensor) -> None:
        """Count a batch.

        Args:
            samples_or_p_values: (K, B, C) probabilities, or p-values (B,).
            correct: (B,) bool, or soft accuracies in [0, 1].
        """
        counts = pavpu_counts(self._p_value(samples_or_p_values), correct, self.threshold)
        self.accurate_certain += counts.accurate_certain
        self.accurate_uncertain += counts.accurate_uncertain
        self.inaccurate_certain += counts.inaccurate_certain
        self.inaccurate_uncertain += counts.inaccurate_uncertain

    def compute(self) -> Tensor:
        """PAvPU in [0, 1]."""
        return pavpu(PAvPUCounts(*(getattr(self, count) for count in PAvPUCounts._fields)))

    def _p_value(self, samples_or_p_values: Tensor) -> Tensor:
        if samples_or_p_values.ndim == 1:
            return samples_or_p_values
        check_probabilities(samples_or_p_values)
        return top_two_p_value(samples_or_p_values, self.test)
