from __future__ import annotations

import itertools
import math

import pytest
import torch

from contextual_dropout_lab.data import gaussian_noise, noisy_copies
from tests.lab.data.gaussian import LIMIT, scores


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("sd", [0.1, 1.0, 3.0])
def test_the_noise_is_gaussian_of_the_given_sd(sd: float) -> None:
    x = torch.rand(1000, 784, generator=generator(1))
    noise = (gaussian_noise(x, sd, generator()).double() - x) / sd
    assert all(abs(score) < LIMIT for score in scores(noise).values()), scores(noise)


def test_the_noise_does_not_depend_on_x() -> None:
    x = torch.rand(1000, 784, generator=generator(1))
    noise = gaussian_noise(x, 1.0, generator()) - x
    correlation = torch.corrcoef(torch.stack([x.flatten(), noise.flatten()]).double())[0, 1].item()
    assert abs(correlation) * math.sqrt(x.numel()) < LIMIT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_x_keeps_its_type_and_its_values(dtype: torch.dtype) -> None:
    x = torch.full((4, 5), 0.5, dtype=dtype)
    noisy = gaussian_noise(x, 0.1, generator())
    assert noisy.dtype == dtype
    assert noisy.shape == x.shape
    assert (x == 0.5).all()


def test_without_noise_x_is_copied() -> None:
    x = torch.rand(3)
    copy = gaussian_noise(x, 0.0, generator())
    assert torch.equal(copy, x)
    assert copy.data_ptr() != x.data_ptr()


def test_an_expanded_x_gets_independent_noise() -> None:
    assert gaussian_noise(torch.zeros(1).expand(50), 1.0, generator()).unique().numel() == 50


def test_a_copy_is_made_of_seed_and_draw_alone() -> None:
    x = torch.rand(7, 5)
    five = list(noisy_copies(x, 0.3, draws=5, seed=3))
    torch.randn(10)  # the global generator plays no part
    third = next(itertools.islice(noisy_copies(x, 0.3, draws=9, seed=3), 2, None))
    assert torch.equal(five[2], third)


def test_copies_of_all_seeds_and_draws_are_different_and_uncorrelated() -> None:
    x = torch.zeros(10_000)
    copies = torch.stack([copy for seed in (-1, 0, 1, 2, 2**63) for copy in noisy_copies(x, 1.0, draws=3, seed=seed)])
    correlations = torch.corrcoef(copies.double()).triu(1).flatten()
    pairs = len(copies) * (len(copies) - 1) // 2
    limit = math.sqrt(2) * torch.erfinv(torch.tensor(1 - 2e-5 / pairs, dtype=torch.float64)).item()
    assert correlations.abs().max().item() * math.sqrt(x.numel()) < limit


def test_the_copies_have_the_given_sd() -> None:
    for copy in noisy_copies(torch.zeros(100_000), 0.5, draws=3, seed=0):
        assert all(abs(score) < LIMIT for score in scores(copy / 0.5).values()), scores(copy / 0.5)


@pytest.mark.parametrize("sd", [-0.1, math.nan, math.inf])
def test_a_wrong_sd_is_refused_at_once(sd: float) -> None:
    with pytest.raises(ValueError, match="standard deviation of the noise is"):
        gaussian_noise(torch.zeros(3), sd, generator())
    with pytest.raises(ValueError, match="standard deviation of the noise is"):
        noisy_copies(torch.zeros(3), sd, draws=1, seed=0)


def test_integers_and_no_draws_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x is of torch.uint8: expected floating point"):
        gaussian_noise(torch.zeros(3, dtype=torch.uint8), 1.0, generator())
    with pytest.raises(ValueError, match="draws is 0"):
        noisy_copies(torch.zeros(3), 1.0, draws=0, seed=0)
