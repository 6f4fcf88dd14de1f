"""Frames: how data sets place ink in their images, so that a drawing reaches a network as training images did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL.Image import Image

__all__ = ["SCALE", "Array", "Frame", "Pixels", "frame_for", "pixels_of", "settle", "slope"]

#: Ink is laid out on a raster that is finer by this factor, then averaged.
SCALE = 16
#: Writing that leans further than 45 degrees does not lean, it is something else.
STEEPEST = 1.0

Pixels = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """The place of ink in an image of ``height`` by ``width`` pixels, light on dark.

    Attributes:
        height: of the image.
        width: of the image.
        box: height and width that the ink's bounding box is scaled to fit.
        pen: the width of a stroke.
        ink: the mean of an image, if it is the same for all digits: the pen becomes finer or broader towards it.
        centre: the point moved to the middle of the image: the middle of the bounding box, or the centre of mass.
        aspect: "kept", or "squeezed": the box is filled from top to bottom, and what is too wide for it made narrower.
        slant: "kept", or "removed": sheared until rows of ink stand above one another.
        cut: "ink" where image files are cut to their ink as well, "middle" where they are taken whole.
    """

    height: int
    width: int
    box: tuple[float, float]
    pen: float
    ink: float | None = None
    centre: Literal["box", "mass"] = "box"
    aspect: Literal["kept", "squeezed"] = "kept"
    slant: Literal["kept", "removed"] = "kept"
    cut: Literal["ink", "middle"] = "middle"

    def scales(self, height: float, width: float, around: float = 0.0) -> tuple[float, float]:
        """The factor for heights and widths of ink that is ``height`` by ``width``.

        A dash is not blown up to a block: ink counts as at least a third as high as it is wide.

        Args:
            height: of the ink's bounding box.
            width: of the ink's bounding box.
            around: how much of the frame's box is left free, for the breadth of a pen.

        Example:
            >>> frame_for("mnist", 28, 28).scales(100.0, 50.0)
            (0.2, 0.2)
            >>> frame_for("digits", 8, 8).scales(80.0, 80.0)  # as high as the image, but narrow
            (0.1, 0.06)
        """
        tall, wide = self.box[0] - around, self.box[1] - around
        high, width = max(height, width / 3, 1e-6), max(width, 1e-6)
        if self.aspect == "squeezed":
            return tall / high, min(tall / high, wide / width)
        scale = min(tall / high, wide / width)
        return scale, scale


def frame_for(data: str, height: int, width: int) -> Frame:
    """The frame of a data set.

    * digits: bitmaps of 32 by 32 in which a digit has the full height and about 0.6 of the width, averaged over blocks
      of 4 by 4; they stand upright, and a one has as much ink as an eight.
    * MNIST: a digit fits into 20 by 20 of the 28 by 28 pixels; its centre of mass is in the middle.
    * others: the whole image but for a margin of one pixel.

    Example:
        >>> frame_for("mnist", 28, 28).box
        (20.0, 20.0)
    """
    if data == "digits":
        return Frame(height, width, (8.0, 4.8), pen=1.2, ink=0.3, aspect="squeezed", slant="removed", cut="ink")
    if data == "mnist":
        return Frame(height, width, (20.0, 20.0), pen=2.4, centre="mass", cut="ink")
    return Frame(height, width, (height - 2.0, width - 2.0), pen=max(1.0, width / 12))


def slope(x: Array, y: Array, ink: Array) -> float:
    """The slant: how far ink moves right from row to row, by regression of x on y, at most 1 to either side.

    Two spots of ink on neighbouring rows would lean without bounds, and so would the memory that standing up takes.

    Example:
        >>> slope(np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 4.0]), np.ones(3))
        0.5
        >>> slope(np.array([0.0, 1000.0]), np.array([0.0, 1.0]), np.ones(2))
        1.0
    """
    across, down = x - np.average(x, weights=ink), y - np.average(y, weights=ink)
    spread = float((ink * down * down).sum())
    found = float((ink * across * down).sum()) / spread if spread > 0 else 0.0
    return min(max(found, -STEEPEST), STEEPEST)


def settle(fine: Pixels, frame: Frame) -> Pixels:
    """Bring the ink's centre to the middle and average blocks of pixels.

    Args:
        fine: (SCALE * height, SCALE * width), ink in the middle of its bounding box.
        frame: of the image.

    Returns:
        (height, width).
    """
    if frame.centre == "mass" and fine.any():
        size, free = np.array(fine.shape), np.array([frame.height, frame.width]) - frame.box
        mass = [np.average(np.arange(size[axis]), weights=fine.sum(1 - axis)) for axis in (0, 1)]
        shift = ((size - 1) / 2 - mass).clip(-free * SCALE / 2, free * SCALE / 2)  # no ink leaves the image
        fine = np.roll(fine, shift.astype(int), (0, 1))
    blocks = fine.reshape(frame.height, SCALE, frame.width, SCALE)
    averaged: Pixels = blocks.mean((1, 3), dtype=np.float32)
    return averaged


def pixels_of(image: Image) -> Pixels:
    """Values from 0 to 1, (height, width) or, of a coloured image, (height, width, 3)."""
    pixels: Pixels = np.asarray(image, dtype=np.float32) / np.float32(255)
    return pixels
