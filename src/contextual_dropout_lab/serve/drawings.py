"""Strokes of a pen to pixels, as the training images of a data set have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from contextual_dropout_lab.serve.frames import SCALE, Array, Frame, Pixels, pixels_of, settle, slope
from contextual_dropout_lab.serve.refusal import Refusal

__all__ = ["Stroke", "render"]

#: Between two points of a stroke, as a share of the drawing.
STEP = 1 / 64
#: How long all strokes together may be, in widths (or heights) of the drawing: a digit has about 3.
LONGEST = 100
#: Points (x, y), x to the right and y downwards.
Stroke = Sequence[tuple[float, float]]


def render(strokes: Sequence[Stroke], frame: Frame) -> Tensor:
    """Draw strokes as large and in the place where the data set has its ink, with a pen of its width.

    Only their form counts, not how large they were drawn, nor where.

    Args:
        strokes: at least one point.
        frame: of the data set.

    Returns:
        (1, height, width) from 0 to 1, light on dark.

    Raises:
        Refusal: the pen went to and fro for so long that it would take seconds to follow it.

    Example:
        >>> from contextual_dropout_lab.serve.frames import frame_for
        >>> (render([[(0.5, 0.2), (0.5, 0.8)]], frame_for("digits", 8, 8))[0, 4] > 0.4).int()
        tensor([0, 0, 0, 1, 1, 0, 0, 0], dtype=torch.int32)
    """
    arrays = [np.asarray(stroke, dtype=np.float64) for stroke in strokes if len(stroke)]
    size = max(np.ptp(np.concatenate(arrays), 0).max(), 1e-6)
    arrays = [array / size for array in arrays]
    if (length := sum(map(_length, arrays))) > LONGEST:
        raise Refusal(
            413,
            f"The pen's path is {length:.0f} times as long as the drawing is large: expected at most {LONGEST}. Clear "
            "it, and draw less.",
        )
    points = [_evenly(array) for array in arrays]
    if frame.slant == "removed":
        points = _upright(points)
    fine = _inked(points, frame, frame.pen)
    if frame.ink is not None:
        fine = _inked(points, frame, frame.pen * min(2.0, max(0.7, frame.ink / float(fine.mean()))))
    return torch.from_numpy(settle(fine, frame)).unsqueeze(0)


def _length(stroke: Array) -> float:
    return float(np.hypot(*np.diff(stroke, axis=0).T).sum())


def _evenly(stroke: Array) -> Array:
    """Points at even distances along a stroke, however fast the pen was."""
    along = np.concatenate([[0.0], np.hypot(*np.diff(stroke, axis=0).T).cumsum()])
    places = np.linspace(0, along[-1], 2 + int(along[-1] / STEP))
    return np.stack([np.interp(places, along, stroke[:, axis]) for axis in (0, 1)], 1)


def _upright(strokes: list[Array]) -> list[Array]:
    x, y = np.concatenate(strokes).T
    shear = slope(x, y, np.ones_like(x))
    return [stroke - np.outer(stroke[:, 1], (shear, 0.0)) for stroke in strokes]


def _inked(strokes: list[Array], frame: Frame, pen: float) -> Pixels:
    """The strokes on a fine raster, so large that their ink fills the frame's box, in the middle."""
    every = np.concatenate(strokes)
    low, high = every.min(0), every.max(0)
    down, right = frame.scales(high[1] - low[1], high[0] - low[0], around=pen)
    image = Image.new("L", (frame.width * SCALE, frame.height * SCALE))
    brush, reach = ImageDraw.Draw(image), pen * SCALE / 2
    for stroke in strokes:
        path = (stroke - (low + high) / 2) * (right * SCALE, down * SCALE) + np.array(image.size) / 2
        points = [(float(x), float(y)) for x, y in path]
        if len(points) > 1:
            brush.line(points, fill=255, width=round(2 * reach))
        for x, y in points:  # round ends and corners
            brush.ellipse((x - reach, y - reach, x + reach, y + reach), fill=255)
    return pixels_of(image)
