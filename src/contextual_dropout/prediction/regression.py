"""Predictions of a regression network from K sampled passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from contextual_dropout.prediction.classification import check_alike, data_frame

if TYPE_CHECKING:
    import pandas

__all__ = ["RegressionPrediction"]


@final
@dataclass(frozen=True, repr=False, eq=False)
class RegressionPrediction:
    """Outputs under K sampled masks; their spread is the uncertainty of the model, without the noise of the data.

    Attributes:
        samples: (K, B, ...), the raw outputs.

    Example:
        >>> prediction = RegressionPrediction(torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]))
        >>> prediction.mean, prediction.std
        (tensor([2., 5.]), tensor([1., 0.]))
        >>> prediction.quantile([0.25, 0.75])
        tensor([[1.5000, 5.0000],
                [2.5000, 5.0000]])
    """

    samples: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.samples, Tensor):
            raise TypeError(f"samples is a {type(self.samples).__name__}: expected a tensor; see torch.as_tensor")
        if self.samples.ndim < 2 or not len(self.samples):
            raise ValueError(
                f"samples has shape {tuple(self.samples.shape)}: expected (K, B, ...), the outputs for B inputs in "
                "each of K >= 1 passes"
            )

    @classmethod
    def cat(cls, predictions: Sequence[RegressionPrediction]) -> RegressionPrediction:
        """One prediction for the inputs of several, batch after batch, (K, B1 + B2 + ..., ...)."""
        check_alike(cls, predictions)
        return cls(torch.cat([each.samples for each in predictions], 1))

    @property
    def shape(self) -> torch.Size:
        """(K, B, ...)."""
        return self.samples.shape

    @cached_property
    def mean(self) -> Tensor:
        """(B, ...)."""
        return self.samples.mean(0)

    @cached_property
    def variance(self) -> Tensor:
        """The unbiased estimate, (B, ...); zero for a single sample."""
        return self._spread(torch.var)

    @cached_property
    def std(self) -> Tensor:
        """The standard deviation, (B, ...), also where the variance would overflow or underflow."""
        return self._spread(torch.std)

    def _spread(self, measure: Callable[..., Tensor]) -> Tensor:
        if len(self.samples) == 1 or not self.samples.numel():  # where torch warns
            return torch.zeros_like(self.samples[0])
        return measure(self.samples, 0)

    def quantile(self, q: float | Sequence[float]) -> Tensor:
        """Quantiles over the samples, linear between them: (B, ...) for a number, (Q, B, ...) for several."""
        if not isinstance(q, int | float):
            if isinstance(q, str) or not hasattr(q, "__iter__"):  # type: ignore[unreachable]
                raise TypeError(f"q is a probability between 0 and 1, or several, got {q!r}")
            return torch.stack([self.quantile(float(one)) for one in q])
        if not 0 <= q <= 1:
            raise ValueError(f"q is a probability between 0 and 1, got {q}")
        position = q * (len(self.samples) - 1)
        below, above = self._sorted[math.floor(position)], self._sorted[math.ceil(position)]
        return torch.lerp(below, above, position - math.floor(position))

    @cached_property
    def _sorted(self) -> Tensor:
        return self.samples.sort(0).values  # torch.quantile stops at 16 million elements

    def to(self, *args: Any, **kwargs: Any) -> RegressionPrediction:
        """The same on another device or in another precision, as a tensor's ``to``."""
        return replace(self, samples=self.samples.to(*args, **kwargs))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per input: mean, std, and the quantiles 0.05, 0.5 and 0.95 of each output."""
        quantiles = {f"q{level:.2f}": self.quantile(level) for level in (0.05, 0.5, 0.95)}
        columns: dict[str, Tensor] = {}
        for name, value in {"mean": self.mean, "std": self.std, **quantiles}.items():
            flat = value.reshape(len(self), -1)  # (B, outputs)
            single = flat.shape[1] == 1
            columns |= {name if single else f"{name}_{index}": column for index, column in enumerate(flat.unbind(1))}
        return data_frame(columns)

    def __len__(self) -> int:
        return self.samples.shape[1]

    def __repr__(self) -> str:
        passes, inputs, *rest = self.samples.shape
        outputs = f" of shape {tuple(rest)}" if rest else ""
        spread = f"; mean std {self.std.mean():.4g}" if self.samples.numel() else ""
        return f"{type(self).__name__}: {inputs} inputs{outputs}, {passes} samples{spread}"
