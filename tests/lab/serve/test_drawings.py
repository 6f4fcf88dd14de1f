"""Drawings come to a network as its training images did."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import contextual_dropout as cd
from contextual_dropout_lab.data import load
from contextual_dropout_lab.serve import LiveNetworks
from contextual_dropout_lab.serve.digit_strokes import DIGITS
from contextual_dropout_lab.serve.drawings import LONGEST, Stroke, render
from contextual_dropout_lab.serve.frames import Frame, frame_for
from contextual_dropout_lab.serve.refusal import Refusal

MNIST, EIGHT = frame_for("mnist", 28, 28), frame_for("digits", 8, 8)


def moved(strokes: list[Stroke], transform: np.ndarray, jitter: float = 0.0, seed: int = 0) -> list[Stroke]:
    random = np.random.default_rng(seed)
    return [
        [tuple((transform @ (np.array(point) - 0.5) + 0.5 + random.normal(0, jitter, 2)).tolist()) for point in stroke]
        for stroke in strokes
    ]


def inked(image: Tensor, axis: int) -> int:
    """How many rows (axis 0) or columns (axis 1) have ink."""
    return int((image[0].amax(1 - axis) > 0.05).sum())


@pytest.mark.parametrize("frame", [MNIST, EIGHT])
@pytest.mark.parametrize("digit", DIGITS)
def test_size_and_place_do_not_count(digit: str, frame: Frame) -> None:
    """But for a sixteenth of a pixel at each edge of a stroke, to which it is drawn."""
    small = [[(x / 3 + 0.6, y / 3 + 0.1) for x, y in stroke] for stroke in DIGITS[digit]]
    assert torch.allclose(render(small, frame), render(DIGITS[digit], frame), atol=0.13)


@pytest.mark.parametrize("digit", DIGITS)
def test_mnist_has_digits_of_20_pixels_about_their_centre_of_mass(digit: str) -> None:
    image = render(DIGITS[digit], MNIST)
    assert image.shape == (1, 28, 28)
    assert 20 <= max(inked(image, 0), inked(image, 1)) <= 21  # a pixel more where the ink is between two
    places = torch.arange(28.0)
    mass = [(image[0].sum(1 - axis) * places).sum() / image.sum() for axis in (0, 1)]
    assert torch.allclose(torch.stack(mass), torch.full((2,), 13.5), atol=0.1)


@pytest.mark.parametrize("digit", DIGITS)
def test_digits_have_the_ink_and_the_height_of_the_training_images(digit: str) -> None:
    data = load("digits", "train")
    own = data.pixels()[data.labels == int(digit)]
    image = render(DIGITS[digit], EIGHT)
    assert image.shape == (1, 8, 8)
    assert inked(image, 0) == 8
    assert abs(image.mean() - own.mean()) < 3 * own.mean((1, 2, 3)).std()


@pytest.mark.parametrize("frame", [MNIST, EIGHT, frame_for("fashion-mnist", 28, 28)])
def test_no_ink_is_lost_and_none_comes_from_nothing(frame: Frame) -> None:
    blob = [(0.9 + 0.02 * np.cos(angle), 0.1 + 0.02 * np.sin(angle)) for angle in np.linspace(0, 60, 300)]
    for strokes in ([[(0.5, 0.5)]], [[(0.0, 0.5), (1.0, 0.5)]], [[(0.1, 0.9), (0.9, 0.1)], blob]):
        image = render(strokes, frame)
        assert image.min() >= 0
        assert image.max() <= 1
        columns = (image[0].amax(0) > 0.02).nonzero().flatten()
        assert image.max() > 0.2
        assert (columns.diff() == 1).all()  # nothing is wrapped around to the other side


def test_digits_are_recognised_however_they_are_drawn(live: LiveNetworks) -> None:
    """Slanted, stretched and shaken: of 20 drawings of each digit, most are read. Seeds are fixed: nothing varies."""
    random = np.random.default_rng(0)
    right = []
    for digit, strokes in DIGITS.items():
        drawn = []
        for seed in range(20):
            transform = (np.eye(2) + random.normal(0, 0.1, (2, 2))) * random.uniform(0.3, 1.0)
            drawn.append(render(moved(strokes, transform, 0.01, seed), live.frame).flatten())
        label = cd.predict(live.networks[0][0], torch.stack(drawn), samples=20, seed=0).label
        right.append((label == int(digit)).double().mean().item())
    assert np.mean(right) > 0.85


@pytest.mark.parametrize("frame", [MNIST, EIGHT])
def test_a_pen_that_goes_to_and_fro_is_followed_only_so_far(frame: Frame) -> None:
    def zigzag(turns: int) -> list[Stroke]:
        return [[(turn / turns, turn % 2) for turn in range(turns + 1)]]

    assert render(zigzag(LONGEST - 1), frame).mean() > 0.1
    for strokes in (zigzag(LONGEST + 1), [[(x / 1000, y / 1000) for x, y in zigzag(9_998)[0]]]):
        with pytest.raises(Refusal, match=f"expected at most {LONGEST}. Clear it, and draw less"):
            render(strokes, frame)


def test_what_lies_is_not_put_upright() -> None:
    """Two dots side by side, one of them a hair lower, do not come to stand above one another."""
    image = render([[(0.1, 0.5)], [(0.9, 0.5001)]], EIGHT)
    assert inked(image, 0) < inked(image, 1)
