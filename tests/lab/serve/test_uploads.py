"""Image files come to a network as its training images did."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image

import contextual_dropout as cd
from contextual_dropout_lab.data import load
from contextual_dropout_lab.serve import LiveNetworks
from contextual_dropout_lab.serve.frames import frame_for
from contextual_dropout_lab.serve.uploads import open_image, to_pixels
from tests.lab.serve.files import SOUND, encoded, picture, two_runs

CIFAR = frame_for("cifar10", 32, 32)


def test_an_image_of_the_right_size_is_taken_as_it_is() -> None:
    for mode, frame, channels in (("L", frame_for("mnist", 28, 28), 1), ("RGB", CIFAR, 3)):
        image = picture(mode, (frame.width, frame.height))
        expected = np.asarray(image, dtype=np.float32).reshape(frame.height, frame.width, channels) / 255
        assert np.allclose(to_pixels(image.convert("RGB"), channels, frame).permute(1, 2, 0), expected)


@pytest.mark.parametrize(("ink", "paper"), [(255, 0), (20, 240)])
def test_digits_are_read_at_any_size_in_any_ink(live: LiveNetworks, ink: int, paper: int) -> None:
    """The test set, enlarged, on a sheet with a margin: nearly as many are read as of the originals."""
    data = load("digits", "test").subset(torch.arange(150))
    pixels = []
    for digit in data.images:
        large = np.asarray(
            Image.fromarray(digit.numpy()).resize((160, 160), Image.Resampling.BICUBIC), dtype=np.float64
        )
        sheet = paper + (ink - paper) * np.pad(large, (40, 90)) / 255
        pixels.append(to_pixels(Image.fromarray(sheet.astype(np.uint8)).convert("RGB"), 1, live.frame).flatten())
    label = cd.predict(live.networks[0][0], torch.stack(pixels), samples=20, seed=0).label
    assert (label == data.labels).double().mean() > 0.85


def test_photographs_are_cut_to_a_square_upright_and_smoothed() -> None:
    stripes = np.zeros((96, 300, 3), dtype=np.uint8)
    stripes[:, ::2] = 255  # finer than the network's pixels: grey, not a moire
    stripes[:, :102] = stripes[:, 198:] = 0  # outside the square
    assert torch.allclose(to_pixels(Image.fromarray(stripes), 3, CIFAR)[:, 4:-4, 4:-4], torch.tensor(0.5), atol=0.06)
    assert open_image(SOUND["rotated"]).size == (30, 40)
    clear = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    assert to_pixels(open_image(encoded(clear)), 3, CIFAR).min() == 1  # on white


def test_clothes_are_taken_whole() -> None:
    """If training images are not digits, ink is not cut out, but dark on light is inverted."""
    sheet = np.full((56, 56), 255, dtype=np.uint8)
    sheet[40:52, 8:20] = 0
    pixels = to_pixels(Image.fromarray(sheet).convert("RGB"), 1, frame_for("fashion-mnist", 28, 28))[0]
    assert (pixels[21:25, 5:9] > 0.9).all()
    assert pixels[:18].max() < 0.1


def test_however_slanted_ink_is_it_takes_no_more_memory_than_the_image_does() -> None:
    sheet = two_runs(400).convert("RGB")  # without a bound on the slant, 400 by 150,000 pixels: enough to see it fail
    tracemalloc.start()
    try:
        pixels = to_pixels(sheet, 1, frame_for("digits", 8, 8))
        assert tracemalloc.get_traced_memory()[1] < 20 * 4 * 400**2
    finally:
        tracemalloc.stop()
    assert pixels.max() > 0.2
