"""Gaussian dropout: multiplicative noise N(1, p/(1-p)) (Srivastava et al., 2014)."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from contextual_dropout.baselines.dropout_layers import replace_dropout, shared_axes, unit_shape
from contextual_dropout.nn.stochastic import Stochastic

__all__ = ["GaussianDropout", "gaussian_dropout"]

Model = TypeVar("Model", bound=nn.Module)


class GaussianDropout(Stochastic):
    """``x = u (1 + s eps)``, eps ~ N(0, 1), with the variance ``s^2 = p / (1 - p)`` of rescaled Bernoulli masks.

    Args:
        p: the drop rate of Bernoulli masks with this variance; 0.2 is s = 0.5.
        shared: how many trailing axes share one eps (2 for the channels of an image).

    Shape:
        Input and output of any shape, the same for both.
    """

    def __init__(self, p: float = 0.2, shared: int = 0) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p is a drop rate in [0, 1), got {p}")
        self.p = p
        self.shared = shared

    @property
    def standard_deviation(self) -> float:
        """The standard deviation s of the noise."""
        return math.sqrt(self.p / (1 - self.p))

    def forward(self, u: Tensor) -> Tensor:
        if not self.stochastic:
            return u
        noise = torch.randn(unit_shape(u, self.shared), dtype=u.dtype, device=u.device)
        return u * noise.mul_(self.standard_deviation).add_(1)

    def extra_repr(self) -> str:
        return f"p={self.p}, shared={self.shared}"


def gaussian_dropout(model: Model, p: float | None = None, **options: Any) -> Model:
    """The network with Gaussian noise in the place of its dropout.

    Args:
        model: a network with dropout layers.
        p: the drop rate of Bernoulli masks with this variance; that of each layer by default.
        options: ``exclude``, ``inplace``.

    Example:
        >>> gaussian_dropout(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.2)))[1].standard_deviation
        0.5
    """
    return replace_dropout(
        model, lambda layer: GaussianDropout(layer.p if p is None else p, shared_axes(layer)), **options
    )
