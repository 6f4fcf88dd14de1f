from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from contextual_dropout_lab.data import Batches, augment, cifar10, gaussian_noise, noisy_copies
from contextual_dropout_lab.data.augment import (
    CIFAR_MEAN,
    CIFAR_STD,
    center_crop,
    crop_and_flip,
    flip,
    normalize,
    pad_crop,
    random_resized_crop,
    resize,
)
from contextual_dropout_lab.data.locations import find
from tests.lab.data.gaussian import LIMIT

#: A test on random numbers may fail with this probability.
FAILURE = 2e-5

RANDOM: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "pad_crop": lambda x, g: pad_crop(x, 2, g),
    "flip": flip,
    "crop_and_flip": crop_and_flip,
    "random_resized_crop": lambda x, g: random_resized_crop(x, (5, 6), g),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def coordinates(size: int, height: int, width: int) -> Tensor:
    """(B, 2, H, W): every pixel is its own row and column."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([rows, columns]).float().expand(size, 2, height, width)


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(1, 6), st.integers(1, 6), st.integers(0, 4), st.integers(0, 99))
def test_pad_crop_cuts_each_image_from_its_frame(size: int, height: int, width: int, padding: int, seed: int) -> None:
    x = torch.rand(size, 3, height, width, generator=generator(seed))
    top, left = torch.randint(2 * padding + 1, (2, size), generator=generator(seed)).tolist()
    cropped = pad_crop(x, padding, generator(seed))
    assert cropped.shape == x.shape
    for b in range(size):
        framed = torch.zeros(3, height + 2 * padding, width + 2 * padding)
        framed[:, padding : padding + height, padding : padding + width] = x[b]
        assert torch.equal(cropped[b], framed[:, top[b] : top[b] + height, left[b] : left[b] + width])


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(1, 5), st.integers(0, 99))
def test_flip_mirrors_some(size: int, width: int, seed: int) -> None:
    x = torch.rand(size, 2, 3, width, generator=generator(seed))
    mirrored = (torch.rand(size, generator=generator(seed)) < 0.5).tolist()
    for before, after, turned in zip(x, flip(x, generator(seed)), mirrored, strict=True):
        assert torch.equal(after, before[:, :, list(range(width))[::-1]] if turned else before)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_random_resized_crop_is_a_cut_and_an_interpolation(
    height: int, width: int, rows: int, columns: int, seed: int
) -> None:
    x = torch.rand(6, 3, height, width, generator=generator(seed), dtype=torch.float64)
    boxes = augment._boxes(x, (0.08, 1.0), (3 / 4, 4 / 3), generator(seed))
    cropped = random_resized_crop(x, (rows, columns), generator(seed))
    for image, result, top, left, h, w in zip(x, cropped, *(part.int().tolist() for part in boxes), strict=True):
        assert 0 <= top <= top + h <= height
        assert 0 <= left <= left + w <= width
        box = image[None, :, top : top + h, left : left + w]
        expected = F.interpolate(box, (rows, columns), mode="bilinear", align_corners=False)[0]
        assert torch.allclose(result, expected, atol=1e-5)


def test_all_places_of_a_crop_are_equally_probable_and_independent() -> None:
    x = coordinates(20_000, 9, 9)
    middle = pad_crop(x, 4, generator())[:, :, 4, 4].int()  # never from the border: it shows its row and column
    counts = (9 * middle[:, 0] + middle[:, 1]).bincount(minlength=81)
    assert stats.chisquare(counts.numpy()).pvalue > FAILURE
    neighbours = (9 * middle[1:, 0] + middle[:-1, 1]).bincount(minlength=81)
    assert stats.chisquare(neighbours.numpy()).pvalue > FAILURE


def test_half_the_images_are_flipped_independently_of_each_other() -> None:
    x = torch.tensor([0.0, 1.0]).expand(20_000, 1, 1, 2)
    flipped = flip(x, generator())[:, 0, 0, 0]
    assert abs(flipped.mean().item() - 0.5) * 2 * math.sqrt(len(x)) < LIMIT
    pairs = (flipped[::2] * 2 + flipped[1::2]).int().bincount(minlength=4)
    assert stats.chisquare(pairs.numpy()).pvalue > FAILURE


def test_boxes_have_the_distribution_that_is_documented() -> None:
    # In an image this large rounding is negligible, and a box of a fifth of it always fits.
    x = torch.zeros(1).expand(20_000, 1, 4000, 4000)
    top, left, height, width = (p.double() for p in augment._boxes(x, (0.1, 0.2), (0.5, 2.0), generator()))
    share, shape = height * width / 4000**2, (width / height).log()
    for values, low, high in (
        (share, 0.1, 0.2),
        (shape, -math.log(2), math.log(2)),
        ((top + 0.5) / (4001 - height), 0, 1),
        ((left + 0.5) / (4001 - width), 0, 1),
    ):
        assert stats.kstest(values.numpy(), "uniform", (low, high - low)).pvalue > FAILURE
    correlations = torch.corrcoef(torch.stack([share, shape, top / (4001 - height), left / (4001 - width)]))
    assert correlations.triu(1).abs().max().item() * math.sqrt(len(top)) < LIMIT + 1  # six of them


def test_the_places_of_a_box_reach_every_edge_equally() -> None:
    x = coordinates(20_000, 4, 4)  # a quarter of it is 2 by 2, which has 3 by 3 places
    corner = random_resized_crop(x, 2, generator(), scale=(0.25, 0.25), ratio=(1.0, 1.0))[:, :, 0, 0].round().int()
    counts = (3 * corner[:, 0] + corner[:, 1]).bincount(minlength=9)
    assert stats.chisquare(counts.numpy()).pvalue > FAILURE


def test_a_box_that_never_fits_is_the_largest_in_the_middle() -> None:
    x = coordinates(4, 8, 40)
    cropped = random_resized_crop(x, (8, 8), generator(), scale=(1.0, 1.0), ratio=(1.0, 1.0))
    assert torch.allclose(cropped, x[:, :, :, 16:24], atol=1e-5)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_type_and_input_are_kept_and_the_generator_decides(name: str, dtype: torch.dtype) -> None:
    x = torch.rand(16, 3, 10, 12, generator=generator(), dtype=dtype)
    before, function = x.clone(), RANDOM[name]
    result = function(x.requires_grad_(), generator(1))
    assert result.dtype == dtype
    assert not result.requires_grad
    torch.rand(5)  # the global generator plays no part
    assert torch.equal(result, function(x, generator(1)))
    assert not torch.equal(result, function(x, generator(2)))
    assert result.data_ptr() != x.data_ptr()
    result.zero_()
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", RANDOM)
def test_grey_images_and_empty_batches_are_welcome(name: str) -> None:
    assert RANDOM[name](torch.rand(2, 1, 10, 12), generator()).shape[:2] == (2, 1)
    if name != "random_resized_crop":
        assert RANDOM[name](torch.rand(0, 3, 10, 12), generator()).shape == (0, 3, 10, 12)
        assert RANDOM[name](torch.ones(2, 3, 4, 4, dtype=torch.uint8), generator()).dtype == torch.uint8


def test_resize_keeps_the_shape_and_the_mean() -> None:
    x = torch.rand(2, 3, 40, 61, generator=generator())
    assert resize(x, 20).shape == (2, 3, 20, 30)
    assert resize(x.mT, 20).shape == (2, 3, 30, 20)
    assert resize(x, (7, 9)).shape == (2, 3, 7, 9)
    assert torch.allclose(resize(x, (20, 61)).mean(), x.mean(), atol=0.01)
    stripes = torch.tensor([0.0, 1.0]).repeat(20).expand(1, 1, 4, 40)
    assert (resize(stripes, (4, 8)) - 0.5).abs().max() < 0.1  # smoothed, not a stripe taken


@pytest.mark.parametrize(("side", "size", "first"), [(5, 5, 0), (5, 3, 1), (5, 2, 2), (4, 1, 2), (256, 224, 16)])
def test_center_crop_takes_the_middle(side: int, size: int, first: int) -> None:
    middle = center_crop(coordinates(1, side, side), size)
    assert middle.shape == (1, 2, size, size)
    assert middle[0, :, 0, 0].tolist() == [first, first]


def test_normalize_makes_mean_0_and_deviation_1() -> None:
    x = torch.rand(50, 3, 8, 8, generator=generator()) * torch.tensor([1.0, 2.0, 3.0])[:, None, None]
    mean, std = x.mean((0, 2, 3)), x.std((0, 2, 3), correction=0)
    y = normalize(x, mean.tolist(), std.tolist())
    assert y.mean((0, 2, 3)).abs().max() < 1e-5
    assert (y.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_batches_are_augmented_before_the_noise() -> None:
    inputs, labels = torch.rand(10, 3, 8, 8), torch.arange(10)
    batches = Batches(inputs, labels, 4, noise_sd=0.3, augment=lambda x, g: crop_and_flip(x, g))
    source = generator(5)
    order = torch.randperm(10, generator=source)
    for rows, (x, y) in zip(order.split(4), batches.epoch(generator(5)), strict=True):
        expected = gaussian_noise(crop_and_flip(inputs[rows], source), 0.3, source)
        assert torch.equal(y, rows)
        assert torch.equal(x, expected)


def test_an_augmentation_that_loses_examples_is_refused() -> None:
    batches = Batches(torch.rand(4, 2), torch.arange(4), 4, augment=lambda x, g: x[:2])
    with pytest.raises(ValueError, match="augment made 2 examples of 4: expected as many"):
        next(batches.epoch(generator()))


def test_noise_comes_on_coloured_images_too() -> None:
    x = torch.rand(4, 3, 5, 6)
    assert [copy.shape for copy in noisy_copies(x, 0.1, draws=2, seed=0)] == [x.shape] * 2
    noise = gaussian_noise(torch.zeros(50, 3, 16, 16), 1.0, generator())
    correlation = torch.corrcoef(noise.transpose(0, 1).flatten(1))[0, 1].item()
    assert abs(correlation) * math.sqrt(noise[:, 0].numel()) < LIMIT  # channels have their own


def test_the_constants_are_those_of_the_images(real: Path) -> None:
    if find("cifar10", "test", real) is None:
        pytest.skip("no cifar10 here")
    pixels = cifar10("test", real).pixels()  # the constants are of the training images: not quite the same
    assert torch.allclose(pixels.mean((0, 2, 3)), torch.tensor(CIFAR_MEAN), atol=0.005)
    assert torch.allclose(pixels.std((0, 2, 3)), torch.tensor(CIFAR_STD), atol=0.005)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: pad_crop(x[0], 1, generator()), r"images are \(3, 4, 4\): expected \(B, C, H, W\)"),
        (lambda x: pad_crop(x, -1, generator()), "padding is -1"),
        (lambda x: random_resized_crop(x.byte(), 2, generator()), "images are of torch.uint8: expected floating"),
        (lambda x: random_resized_crop(x, 0, generator()), "size is 0"),
        (lambda x: random_resized_crop(x, 2, generator(), scale=(0.0, 1.0)), "scale is"),
        (lambda x: random_resized_crop(x, 2, generator(), scale=(0.5, 1.1)), "scale is"),
        (lambda x: random_resized_crop(x, 2, generator(), ratio=(2.0, 1.0)), "ratio is"),
        (lambda x: random_resized_crop(x, 2, generator(), ratio=(1.0, math.inf)), "ratio is"),
        (lambda x: random_resized_crop(x, 2, generator(), ratio=(math.nan, 1.0)), "ratio is"),
        (lambda x: center_crop(x, 5), r"size is \(5, 5\): expected at most that of the images, \(4, 4\)"),
        (lambda x: resize(x, (0, 1)), r"size is \(0, 1\)"),
        (lambda x: normalize(x, (0.5,), (0.5,)), "expected 3 numbers each"),
        (lambda x: normalize(x, (0.5,) * 3, (0.5, 0.0, 1.0)), "std above 0"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.rand(2, 3, 4, 4))
