"""Gaussian noise on inputs that are scaled from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

__all__ = ["check_sd", "gaussian_noise", "noise_generator", "noisy_copies"]


def gaussian_noise(x: Tensor, sd: float, generator: torch.Generator) -> Tensor:
    """x + sd e with e ~ N(0, 1), independent for every element and not clipped to the range of x.

    Args:
        x: floating point, any shape.
        sd: the standard deviation, on the scale of x: 0.1 is a tenth of the way from black to white.
        generator: on the device of x.

    Returns:
        A new tensor of the shape and type of x.

    Example:
        >>> x = torch.zeros(10_000)
        >>> gaussian_noise(x, 0.5, torch.Generator().manual_seed(0)).std()
        tensor(0.50)
    """
    check_sd(sd)
    if not x.is_floating_point():
        raise ValueError(f"x is of {x.dtype}: expected floating point from 0 to 1; pass LabelledImages.inputs()")
    return torch.empty_like(x).normal_(0.0, sd, generator=generator).add_(x)


def noisy_copies(x: Tensor, sd: float, draws: int, seed: int) -> Iterator[Tensor]:
    """Fixed noisy copies of a test set, one after the other.

    Copy d is made of (seed, d) alone: it depends neither on ``draws`` nor on the copies before it, and no other seed
    has it. The noise is drawn on the CPU, so that it does not depend on the device of x either.

    Args:
        x: floating point, any shape.
        sd: as for :func:`gaussian_noise`.
        draws: how many copies.
        seed: any integer.

    Returns:
        An iterator over ``draws`` tensors of the shape and type of x.

    Example:
        >>> a, b = noisy_copies(torch.zeros(3), 1.0, draws=2, seed=7)
        >>> again, *_ = noisy_copies(torch.zeros(3), 1.0, draws=5, seed=7)
        >>> torch.equal(a, again), torch.equal(a, b)
        (True, False)
    """
    check_sd(sd)
    if draws < 1:
        raise ValueError(f"draws is {draws}: expected at least one noisy copy")
    host = x.detach().cpu()
    return (gaussian_noise(host, sd, noise_generator(seed, draw)).to(x.device) for draw in range(draws))


def check_sd(sd: float) -> None:
    """A standard deviation has to be a finite number of at least 0."""
    if not (math.isfinite(sd) and sd >= 0):
        raise ValueError(f"the standard deviation of the noise is {sd}: expected a finite number of at least 0")


def noise_generator(seed: int, *numbers: int) -> torch.Generator:
    """A generator on the CPU for these numbers, of which the draw is the first."""
    # Not seed + draw: the second copy of one seed would be the first of the next.
    state = np.random.SeedSequence((seed % 2**64, *numbers)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
