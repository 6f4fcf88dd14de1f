"""Whether two sets of samples have one distribution, at a failure rate that is proven.

Let a and b be K independent samples each. If their distributions are equal, then d = f(a) - f(b) is distributed like
-d for any function f, so that given the sizes |d_k| only the signs are random, and by Hoeffding's inequality

    P(|sum_k d_k| >= x sqrt(sum_k d_k^2)) <= 2 exp(-x^2 / 2)

whatever the distribution: discrete, heavy-tailed or constant. The functions that are compared are the outputs
(means), half the squared differences of two samples (variances), and the product of such differences of two rows
(covariances). Two samples that are not independent of one another differ too little: that is how samples which share
a draw are found. All comparisons together fail by chance at most at the given rate, by Bonferroni.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

__all__ = ["Difference", "compare", "features"]

#: What the order of floating-point operations may change in a feature.
ROUNDING = 2e-4


@dataclass(frozen=True)
class Difference:
    """The comparison that failed most clearly.

    Attributes:
        what: mean, variance or covariance.
        where: which of them.
        left: its value among the first samples.
        right: its value among the second ones.
        ratio: |sum d| / sqrt(sum d^2).
        bound: what it may be.
    """

    what: str
    where: int
    left: float
    right: float
    ratio: float
    bound: float

    def __str__(self) -> str:
        return (
            f"{self.what} {self.where}: {self.left:.4f} instead of {self.right:.4f} "
            f"({self.ratio:.1f} standard errors, allowed are {self.bound:.1f})"
        )


def features(outputs: Tensor) -> Tensor:
    """Bounded functions (K, B, F) of outputs (K, B, ...): what is infinite or not a number shows, too."""
    flat = outputs.detach().double().flatten(2) if outputs.ndim > 2 else outputs.detach().double()[..., None]
    return torch.tanh(flat).nan_to_num(nan=3.0)


def compare(a: Tensor, b: Tensor, rate: float, lag: int = 1) -> Difference | None:
    """The clearest difference between samples (K, B, F), if one is significant at ``rate``.

    Args:
        a: bounded features of K samples.
        b: of K samples that are known to be independent.
        rate: the probability of an alarm where there is no difference is at most this.
        lag: samples this far apart are compared with one another too, where it is more than 1.
    """
    lags = [1, lag] if lag > 1 and 2 * lag <= len(a) else [1]
    families = {"mean": (a.flatten(1), b.flatten(1))}
    for step in lags:
        left, right = _moves(a, step), _moves(b, step)
        distance = f" (samples {step} apart)"
        families["variance" + distance] = (left.square().flatten(1) / 2, right.square().flatten(1) / 2)
        if a.shape[1] > 1:
            families["covariance of rows" + distance] = (_products(left), _products(right))
    count = sum(left.shape[1] for left, _ in families.values())
    bound = math.sqrt(2 * math.log(2 * count / rate))
    worst: Difference | None = None
    for what, (left, right) in families.items():
        differences = left - right
        excess = (differences.sum(0).abs() - len(differences) * ROUNDING).clamp_min(0)
        ratios = excess / differences.square().sum(0).sqrt().clamp_min(1e-12)
        where = int(ratios.argmax())
        if ratios[where] > bound and (worst is None or ratios[where] > worst.ratio):
            means = float(left[:, where].mean()), float(right[:, where].mean())
            worst = Difference(what, where, *means, float(ratios[where]), bound)
    return worst


def _moves(samples: Tensor, lag: int) -> Tensor:
    """Differences of samples ``lag`` apart, each sample in one of them: (K', B, F)."""
    blocks = len(samples) // (2 * lag)
    pairs = samples[: blocks * 2 * lag].unflatten(0, (blocks, 2, lag))
    return (pairs[:, 0] - pairs[:, 1]).flatten(0, 1)


def _products(moves: Tensor) -> Tensor:
    """Of the sums over features of each two rows: (K', B (B - 1) / 2)."""
    sums = moves.sum(-1)
    return torch.stack([sums[:, i] * sums[:, j] / 2 for i, j in combinations(range(sums.shape[1]), 2)], 1)
