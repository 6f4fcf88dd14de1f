"""Selective prediction over many batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from contextual_dropout.metrics.inputs import check_per_example, check_unit_interval
from contextual_dropout.metrics.selective import risk_coverage_curve

__all__ = ["RiskCoverage"]


class RiskCoverage(Metric):
    """The area under the risk-coverage curve, AURC: lower is better.

    ``AURC = (1/N) sum_k risk(k/N)``; see :func:`risk_coverage_curve` for the risk and for ties. A constant
    uncertainty has the error rate as its AURC. Before any example it is NaN, as it has no value.

    Example:
        >>> metric = RiskCoverage()
        >>> metric.update(torch.tensor([0.1, 0.9]), torch.tensor([True, False]))
        >>> metric.compute()
        tensor(0.2500, dtype=torch.float64)
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    uncertainty: list[Tensor] | Tensor
    correct: list[Tensor] | Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # A process without examples sends an empty tensor of the metric's dtype: it must be that of the states.
        self.set_dtype(torch.float64)
        self.add_state("uncertainty", [], dist_reduce_fx="cat")
        self.add_state("correct", [], dist_reduce_fx="cat")

    def update(self, uncertainty: Tensor, correct: Tensor) -> None:
        """Keep a batch.

        Args:
            uncertainty: (B,), higher is less certain.
            correct: (B,) bool, or soft accuracies in [0, 1].
        """
        check_per_example("uncertainty", uncertainty, "correct", correct)
        check_unit_interval("correct", correct)
        assert isinstance(self.uncertainty, list)
        assert isinstance(self.correct, list)
        self.uncertainty.append(uncertainty.detach().double())
        self.correct.append(correct.detach().double())

    def compute(self) -> Tensor:
        """AURC in [0, 1]."""
        return self._curve()[1].mean()

    def curve(self) -> tuple[Tensor, Tensor]:
        """Coverage (N,) and risk (N,) over all processes, every one of which must call it."""
        local = not self._is_synced
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=local, should_unsync=local):
            return self._curve()

    def _curve(self) -> tuple[Tensor, Tensor]:
        if len(self.uncertainty) == 0:
            return torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        return risk_coverage_curve(dim_zero_cat(self.uncertainty), dim_zero_cat(self.correct))
