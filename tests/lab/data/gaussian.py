"""Statistics of Gaussian noise, compared at a failure rate of 2e-5 each."""

from __future__ import annotations

import math

from torch import Tensor

#: A standard normal is further away from 0 than this with probability 2e-5.
LIMIT = 4.265


def scores(noise: Tensor) -> dict[str, float]:
    """Statistics of n supposedly standard normal numbers, each itself close to standard normal."""
    z, n = noise.double().flatten(), noise.numel()
    return {
        "mean": z.mean().item() * math.sqrt(n),
        "variance": (z.square().mean().item() - 1) * math.sqrt(n / 2),
        "skewness": z.pow(3).mean().item() * math.sqrt(n / 15),
        "kurtosis": (z.pow(4).mean().item() - 3) * math.sqrt(n / 96),
        "neighbours": (z[1:] * z[:-1]).mean().item() * math.sqrt(n - 1),
    }
