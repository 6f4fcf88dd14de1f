"""Tests whether the most probable class is really ahead of the second: two-sided p-values per example (Appendix D).

=============== ======= ============= ====================================================
test            pairing parametric    use it for
=============== ======= ============= ====================================================
paired_t        paired  Student's t   classes of one softmax (the paper's image experiments)
independent_t   none    Student's t   independent sigmoids (the paper's VQA)
wilcoxon        paired  signed ranks  a check of ``paired_t`` that assumes no normality
rank_sum        none    ranks         the paper's footnote; also called Mann-Whitney U
=============== ======= ============= ====================================================

With one sample (K = 1) there is no spread to compare a difference with: every test gives p = 1, never certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy  # type: ignore[import-untyped, unused-ignore]  # its parts load at first use: stats takes a second
import torch
from torch import Tensor

__all__ = [
    "TwoSampleTest",
    "independent_t",
    "leading_classes",
    "mean_probability",
    "paired_t",
    "rank_sum",
    "top_two_p_value",
    "wilcoxon",
]

Array = npt.NDArray[np.float64]

#: Columns are scaled into [-1, 1]; two numbers closer than this differ by no more than their own rounding.
ROUNDING = 4 * float(np.finfo(np.float64).eps)

#: Up to this K all 2^K sign flips are enumerated, as scipy does for columns with ties.
MAX_ENUMERATED = 13


class TwoSampleTest(Protocol):
    """A two-sample test: (K, B) and (K, B) to two-sided p-values (B,)."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """The p-value of every column."""


def paired_t(a: Tensor, b: Tensor) -> Tensor:
    """The paired two-sample t-test.

    ``T = mean(d) / (s / sqrt(K))`` with ``d = a - b`` and K - 1 degrees of freedom (Appendix D of the paper).
    Where d is constant up to float64 rounding the limit is given: p = 0 if d is not zero, p = 1 if it is.

    Args:
        a: (K, B), the samples of one quantity.
        b: (K, B), those of the other, row by row from the same draw.

    Returns:
        (B,) p-values in float64.

    Example:
        >>> paired_t(torch.tensor([[0.5, 0.5], [0.7, 0.5]]), torch.tensor([[0.5, 0.5], [0.3, 0.5]]))
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    x, y = _scaled(*_columns(a, b))
    mean, variance = _moments(x - y)
    return _like(a, _two_sided_t(mean, variance, len(x), len(x) - 1))


def independent_t(a: Tensor, b: Tensor) -> Tensor:
    """The independent two-sample t-test with pooled variance.

    ``T = (mean(a) - mean(b)) / sqrt(2 s^2 / K)``, ``s^2 = (sum (a - mean(a))^2 + sum (b - mean(b))^2) / (2K - 2)``
    and 2K - 2 degrees of freedom (Appendix D, which forgets the squares in s^2). Where a and b are both constant
    up to float64 rounding the limit is given: p = 0 if they differ, p = 1 if not.

    Args:
        a: (K, B), the samples of one quantity.
        b: (K, B), those of the other.

    Returns:
        (B,) p-values in float64.

    Example:
        >>> independent_t(torch.tensor([[0.5], [0.7]]), torch.tensor([[0.5], [0.3]]))
        tensor([0.2929], dtype=torch.float64)
    """
    x, y = _scaled(*_columns(a, b))
    (mean_x, variance_x), (mean_y, variance_y) = _moments(x), _moments(y)
    # With equal sizes 2 s^2 is the sum of the two unbiased variances.
    return _like(a, _two_sided_t(mean_x - mean_y, variance_x + variance_y, len(x), 2 * len(x) - 2))


def wilcoxon(a: Tensor, b: Tensor) -> Tensor:
    """The Wilcoxon signed-rank test of paired samples, each column as ``scipy.stats.wilcoxon`` answers it alone.

    ``W = sum_k rank(|d_k|) 1[d_k > 0]`` with ``d = a - b``; zeros are dropped. The null distribution is exact for
    K <= 50 without ties or zeros and for K <= 13 with them, else normal. Columns without any non-zero difference
    have p = 1. This is not the test of the paper's footnote: see :func:`rank_sum`.

    Args:
        a: (K, B), the samples of one quantity.
        b: (K, B), those of the other, row by row from the same draw.

    Returns:
        (B,) p-values in float64, at least 2^(1-K) where exact: K <= 5 can never be certain at 0.05.

    Example:
        >>> a = torch.tensor([[0.6], [0.7], [0.8], [0.9], [0.95], [0.99]])
        >>> wilcoxon(a, 1 - a)
        tensor([0.0312], dtype=torch.float64)
    """
    d = _differences(*_columns(a, b))
    if len(d) <= MAX_ENUMERATED:
        return _like(a, _signed_rank_by_enumeration(d))
    tied, varies = _has_ties(np.abs(d)) | (d == 0).any(0), (d != 0).any(0)
    return _like(a, _by_group(scipy.stats.wilcoxon, (d,), [np.flatnonzero(~tied), np.flatnonzero(tied & varies)]))


def rank_sum(a: Tensor, b: Tensor) -> Tensor:
    """The Wilcoxon rank-sum or Mann-Whitney U test, each column as ``scipy.stats.mannwhitneyu`` answers it alone.

    ``U = sum_jk 1[a_j > b_k] + 1[a_j = b_k] / 2``: the nonparametric test of the paper's footnote (Appendix D).
    Exact for K <= 8 without ties, else normal with continuity correction. Columns of one value have p = 1.

    Args:
        a: (K, B), the samples of one quantity.
        b: (K, B), those of the other.

    Returns:
        (B,) p-values in float64.

    Example:
        >>> rank_sum(torch.tensor([[0.5], [0.7], [0.8]]), torch.tensor([[0.1], [0.2], [0.3]]))
        tensor([0.1000], dtype=torch.float64)
    """
    x, y = _columns(a, b)
    both = np.concatenate([x, y])
    tied, varies = _has_ties(both), both.max(0) > both.min(0)
    return _like(a, _by_group(scipy.stats.mannwhitneyu, (x, y), [np.flatnonzero(~tied), np.flatnonzero(tied & varies)]))


def top_two_p_value(samples: Tensor, test: TwoSampleTest = paired_t) -> Tensor:
    """The p-value of the class of highest mean probability against the second (Appendix D of the paper).

    :func:`leading_classes` says which classes these are.

    Args:
        samples: (K, B, C) probabilities, C >= 2.
        test: the two-sample test; the paper takes ``independent_t`` for multi-label models.

    Returns:
        (B,) p-values in float64.

    Example:
        >>> samples = torch.tensor([[[0.7, 0.2, 0.1]], [[0.6, 0.3, 0.1]], [[0.8, 0.1, 0.1]]])
        >>> top_two_p_value(samples)
        tensor([0.0494], dtype=torch.float64)
    """
    if samples.ndim != 3 or samples.shape[-1] < 2 or len(samples) < 1:
        raise ValueError(
            f"samples has shape {tuple(samples.shape)}: expected (K, B, C) with K >= 1 passes and C >= 2 classes; "
            "stack the passes along dim 0 and give a binary model two columns (1 - p, p)"
        )
    return test(*samples.gather(-1, leading_classes(samples).expand(len(samples), -1, -1)).unbind(-1))


def leading_classes(samples: Tensor) -> Tensor:
    """The classes of the highest and of the second highest mean probability: the label of a prediction and its rival.

    Means are compared in float64, in which two classes are seldom rounded to the same; among equal means the class of
    lower index comes first.

    Args:
        samples: (K, B, C) probabilities.

    Returns:
        (B, 2); (B, 1) where there is one class only.

    Example:
        >>> leading_classes(torch.tensor([[[0.3, 0.1, 0.3, 0.3], [0.1, 0.2, 0.3, 0.4]]]))
        tensor([[0, 2],
                [3, 2]])
    """
    mean = mean_probability(samples.detach())
    first = mean.argmax(-1, keepdim=True)
    second = mean.scatter(-1, first, -torch.inf).argmax(-1, keepdim=True)
    return torch.cat([first, second], -1)[:, : mean.shape[-1]].to(samples.device)


def mean_probability(samples: Tensor) -> Tensor:
    """The mean over K passes in float64, (K, B, C) to (B, C).

    Passes are added one after the other: the mean of an input does not depend on what it is batched with, and no copy
    of all samples is made.
    """
    device = "cpu" if samples.device.type == "mps" else samples.device  # Apple's GPUs have no float64
    total = torch.zeros(samples.shape[1:], dtype=torch.float64, device=device)
    for sample in samples:
        total += sample.to(device)
    return total / len(samples)


def _columns(a: Tensor, b: Tensor) -> tuple[Array, Array]:
    if a.shape != b.shape or a.ndim != 2 or len(a) < 1:
        raise ValueError(
            f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: expected (K, B) for both, K >= 1 samples of B "
            "examples; stack the samples along dim 0"
        )
    for name, tensor in (("a", a), ("b", b)):
        bad = (~tensor.isfinite()).any(0).nonzero().flatten().tolist()
        if bad:
            raise ValueError(
                f"{name} is NaN or infinite in column {bad[0]} ({len(bad)} columns in all): expected finite samples; "
                "look for an overflow in the model's output of that example"
            )
    x, y = (t.detach().cpu().double().numpy() for t in (a, b))
    return x, y


def _like(a: Tensor, p: Array) -> Tensor:
    return torch.from_numpy(np.asarray(p, dtype=np.float64)).to(a.device)


def _scaled(x: Array, y: Array) -> tuple[Array, Array]:
    # A power of two per column: exact, and no square overflows or underflows afterwards.
    exponent = np.frexp(np.maximum(np.abs(x).max(0), np.abs(y).max(0)))[1]
    return np.ldexp(x, -exponent), np.ldexp(y, -exponent)


def _differences(x: Array, y: Array) -> Array:
    # Halved, which changes no rank, where they could overflow.
    largest = np.maximum(np.abs(x).max(0), np.abs(y).max(0))
    factor = np.where(largest > np.finfo(np.float64).max / 2, 0.5, 1.0)
    d: Array = factor * x - factor * y
    return d


def _moments(x: Array) -> tuple[Array, Array]:
    # Shifted by the first row, so that a constant column has variance 0 and its mean exactly.
    shift = x - x[0]
    mean = shift.mean(0)
    return x[0] + mean, ((shift - mean) ** 2).sum(0) / max(len(x) - 1, 1)


def _two_sided_t(difference: Array, variance: Array, size: int, freedom: int) -> Array:
    if freedom < 1:
        return np.ones_like(difference)
    constant = np.sqrt(variance) <= ROUNDING
    t = np.abs(difference) / np.sqrt(np.where(constant, 1.0, variance) / size)
    limit = np.where(np.abs(difference) <= ROUNDING, 1.0, 0.0)
    p: Array = np.where(constant, limit, 2 * scipy.special.stdtr(float(freedom), -t))
    return p


def _has_ties(x: Array) -> npt.NDArray[np.bool_]:
    ordered = np.sort(x, axis=0)
    ties: npt.NDArray[np.bool_] = (ordered[1:] == ordered[:-1]).any(0)
    return ties


def _signed_rank_by_enumeration(d: Array) -> Array:
    # scipy's permutation_test gives the same numbers but takes most of a second for one column of 13.
    size = len(d)
    ranks = np.where(d == 0, 0.0, scipy.stats.rankdata(np.abs(d), axis=0) - (d == 0).sum(0))  # exact: halves
    observed = ((d > 0) * ranks).sum(0)
    flips = (np.arange(2**size)[:, None] >> np.arange(size) & 1).astype(np.float64)  # (2^K, K)
    p = np.ones(d.shape[1])
    for start in range(0, len(p), 512):  # 512 columns of 2^13 flips are 34 MB
        part = slice(start, start + 512)
        null = flips @ ranks[:, part]
        p[part] = 2 * np.minimum((null <= observed[part]).mean(0), (null >= observed[part]).mean(0))
    return np.minimum(p, 1.0)


def _by_group(test: Callable[..., Any], samples: Sequence[Array], groups: Iterable[npt.NDArray[np.intp]]) -> Array:
    # scipy chooses one null distribution for all columns of a call: one tied column would change its neighbours.
    p = np.ones(samples[0].shape[1])
    for group in groups:
        if len(group):
            p[group] = test(*(x[:, group] for x in samples), axis=0).pvalue
    return p
