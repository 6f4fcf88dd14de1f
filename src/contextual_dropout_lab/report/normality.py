"""Tests of whether differences between the two top classes are normal over samples (Appendix D)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import scipy  # type: ignore[import-untyped, unused-ignore]  # whose parts load at first use
import torch
from torch import Tensor

from contextual_dropout.prediction.classification import Classification

__all__ = ["FEWEST", "LEVEL", "Normality"]

#: At which normality is rejected.
LEVEL = 0.05
#: Samples that the test needs.
FEWEST = 3
#: Runs keep logarithms of probabilities in half precision; over fewer of its steps than 16, normal samples would be
#: rejected for their ties.
RESOLUTION = 16 * float(torch.finfo(torch.float16).eps)


@dataclass(frozen=True, eq=False)
class Normality:
    """The Shapiro-Wilk test of every example.

    That it does not reject proves nothing: few samples show strong departures only.

    Attributes:
        prediction: of K >= 3 samples.

    Example:
        >>> top = 0.6 + 0.1 * torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
        >>> from contextual_dropout.prediction.classification import Prediction
        >>> found = Normality(Prediction(torch.stack([top, 1 - top], -1)))
        >>> found.differences.shape, found.p_value
        (torch.Size([20, 4]), tensor([...], dtype=torch.float64))
    """

    prediction: Classification

    def __post_init__(self) -> None:
        if len(self.prediction.samples) < FEWEST:
            raise ValueError(f"got {len(self.prediction.samples)} samples: a test of normality needs at least {FEWEST}")

    @cached_property
    def _top_two(self) -> Tensor:
        """The probabilities of the two classes that are highest on average, (K, B, 2)."""
        samples = self.prediction.samples
        return samples.gather(-1, self.prediction.top_two.expand(len(samples), -1, -1))

    @property
    def differences(self) -> Tensor:
        """The differences between these two, (K, B)."""
        return self._top_two[..., 0] - self._top_two[..., 1]

    @cached_property
    def tested(self) -> Tensor:
        """Whether the differences vary, (B,) bool.

        Where they do not, the range of the log-odds is at most 1/64 of the largest logarithm.
        """
        logs = self._top_two.clamp_min(torch.finfo(self._top_two.dtype).tiny).log()
        odds = logs[..., 0] - logs[..., 1]
        return odds.amax(0) - odds.amin(0) > RESOLUTION * logs.abs().amax((0, 2))

    @cached_property
    def p_value(self) -> Tensor:
        """The p-value of the hypothesis that the differences are normal, (B,); NaN where they do not vary."""
        p_value = torch.full((len(self.prediction),), torch.nan, dtype=torch.float64)
        differences = self.differences.double().numpy()
        for row in self.tested.nonzero().flatten().tolist():
            p_value[row] = float(scipy.stats.shapiro(differences[:, row]).pvalue)
        return p_value

    @property
    def rejected(self) -> Tensor:
        """Whether normality is rejected at 5 %, (B,) bool."""
        return self.p_value < LEVEL
