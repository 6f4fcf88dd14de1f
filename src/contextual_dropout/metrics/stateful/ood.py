"""Detection of out-of-distribution examples, over many batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from contextual_dropout.metrics.ood import check_detection, out_of_distribution

__all__ = ["OutOfDistribution"]


class OutOfDistribution(Metric):
    """AUROC and FPR95 of the uncertainty as a detector; out-of-distribution is the positive class.

    ``auroc = P(u_out > u_in) + P(u_out = u_in) / 2``; ``fpr95`` is the share of in-distribution examples flagged by
    the highest threshold that flags at least 95% of the others (Hendrycks and Gimpel, 2017; not in the paper).
    Without examples of both kinds neither has a value: both are NaN.

    Example:
        >>> metric = OutOfDistribution()
        >>> metric.update(torch.tensor([0.1, 0.4, 0.3, 0.9]), torch.tensor([False, False, True, True]))
        >>> {name: value.item() for name, value in metric.compute().items()}
        {'auroc': 0.75, 'fpr95': 0.5}
    """

    is_differentiable = False
    full_state_update = False

    uncertainty: list[Tensor] | Tensor
    is_ood: list[Tensor] | Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # A process without examples sends an empty tensor of the metric's dtype: it must be that of the states.
        self.set_dtype(torch.float64)
        self.add_state("uncertainty", [], dist_reduce_fx="cat")
        self.add_state("is_ood", [], dist_reduce_fx="cat")

    def update(self, uncertainty: Tensor, is_ood: Tensor) -> None:
        """Keep a batch.

        Args:
            uncertainty: (B,), higher is less certain.
            is_ood: (B,) bool.
        """
        check_detection(uncertainty, is_ood)
        assert isinstance(self.uncertainty, list)
        assert isinstance(self.is_ood, list)
        self.uncertainty.append(uncertainty.detach().double())
        self.is_ood.append(is_ood.double())

    def compute(self) -> dict[str, Tensor]:
        """``{"auroc": scalar, "fpr95": scalar}``."""
        if len(self.uncertainty) == 0:
            return out_of_distribution(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
        return out_of_distribution(dim_zero_cat(self.uncertainty), dim_zero_cat(self.is_ood).bool())
