"""The comparison of samples: it is as rarely wrong as it says, and it finds what it is for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.exact.enumeration import FAILURE_RATE
from tests.generated.comparison import compare, features


def masks(keep: float, samples: int) -> Tensor:
    """Outputs (K, 2, 3) of units that are kept with this probability: nearly constant, discrete, or skewed."""
    return features((torch.rand(samples, 2, 3) < keep).float() * torch.tensor([0.1, 1.0, 30.0]))


@pytest.mark.parametrize("keep", [0.5, 0.99, 0.999, 1.0])
def test_equal_distributions_rarely_differ(keep: float) -> None:
    torch.manual_seed(0)
    trials, rate = 1000, 0.05
    alarms = sum(compare(masks(keep, 64), masks(keep, 64), rate, lag=8) is not None for _ in range(trials))
    assert alarms <= stats.binom.ppf(1 - FAILURE_RATE, trials, rate)


def test_heavy_tails_do_not_alarm() -> None:
    torch.manual_seed(0)
    trials, rate = 1000, 0.05
    pairs = ((torch.randn(2, 64, 2, 3) / torch.randn(2, 64, 2, 3)) for _ in range(trials))
    alarms = sum(compare(a, b, rate) is not None for a, b in pairs)
    assert alarms <= stats.binom.ppf(1 - FAILURE_RATE, trials, rate)


def test_what_only_rounding_changes_is_equal() -> None:
    constant = torch.ones(192, 2, 3, dtype=torch.float64)
    assert compare(constant, constant + 1e-5, FAILURE_RATE) is None
    assert compare(constant, constant + 1e-2, FAILURE_RATE) is not None


def independent(samples: int) -> Tensor:
    return torch.randn(samples, 3, 2)


def shifted(samples: int) -> Tensor:
    return independent(samples) + 0.7


def spread(samples: int) -> Tensor:
    return 3 * independent(samples)


def one_draw_for_all_rows(samples: int) -> Tensor:
    return torch.randn(samples, 1, 2).expand(samples, 3, 2)


def one_draw_for_a_chunk(samples: int) -> Tensor:
    return torch.randn(samples // 16, 3, 2).repeat_interleave(16, 0)


def the_same_draws_in_each_chunk(samples: int) -> Tensor:
    return torch.randn(16, 3, 2).repeat(samples // 16, 1, 1)


@pytest.mark.parametrize(
    ("draw", "found"),
    [
        (shifted, "mean"),
        (spread, "variance"),
        (one_draw_for_all_rows, "covariance of rows"),
        (one_draw_for_a_chunk, "variance (samples 1 apart)"),
        (the_same_draws_in_each_chunk, "variance (samples 16 apart)"),
    ],
)
def test_differences_are_found(draw: Callable[[int], Tensor], found: str) -> None:
    torch.manual_seed(0)
    difference = compare(features(draw(768)), features(independent(768)), FAILURE_RATE, lag=16)
    assert difference is not None
    assert difference.what.startswith(found)
