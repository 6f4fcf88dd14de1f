"""Decode untrusted image files of visitors to pixels as a network takes them."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor

from contextual_dropout_lab.data.formats.jpeg_png import check_scans
from contextual_dropout_lab.serve.frames import SCALE, Frame, Pixels, pixels_of, settle, slope
from contextual_dropout_lab.serve.refusal import Refusal

__all__ = ["FORMATS", "MAX_PIXELS", "MAX_SIDE", "open_image", "to_pixels"]

#: The formats that are decoded; Pillow reads many more, and each is a way to attack.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
#: Larger images are refused before they are decoded: a photograph of a good telephone has 25 million pixels.
MAX_PIXELS, MAX_SIDE = 30_000_000, 12_000
#: No network here needs more pixels on a side.
ENOUGH = 2048
#: Pixels darker than this share of the brightest ink belong to the background.
FAINT = 0.25


def open_image(content: bytes) -> Image.Image:
    """Decode a file: upright, RGB, on white where it is transparent.

    Raises:
        Refusal: it is not an image, damaged, of another format, or of absurd size or length.
    """
    try:
        check_scans(content)
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            _check_size(*image.size)
            image.thumbnail((ENOUGH, ENOUGH))  # a JPEG file is decoded at about this size from the first
            upright = ImageOps.exif_transpose(image)
            opaque = not ("A" in upright.getbands() or "transparency" in upright.info)
            coloured = upright.convert("RGB" if opaque else "RGBA")
    except (Refusal, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # which of them, the user decides
        raise Refusal(413, "The image is far too large to be decoded: send a smaller one.") from error
    except Exception as error:  # the decoders of Pillow raise whatever comes: SyntaxError, struct.error, ...
        expected = ", ".join(FORMATS)
        raise Refusal(415, f"This file cannot be read as an image: expected a sound {expected} file.") from error
    if opaque:
        return coloured
    white = Image.new("RGBA", coloured.size, "white")
    return Image.alpha_composite(white, coloured).convert("RGB")


def to_pixels(image: Image.Image, channels: int, frame: Frame) -> Tensor:
    """The image in the size of the network's training images, (C, H, W) from 0 to 1.

    An image that has this size is taken as it is. Of others a square is cut out of the middle and scaled down; where
    the training images are digits, the ink is cut out instead and put where they have it. Grey networks read light
    ink on dark ground: an image whose border is light is inverted.

    Args:
        image: RGB.
        channels: 1 or 3.
        frame: of the training images.
    """
    size = (frame.width, frame.height)
    if channels == 3:
        return _tensor(_fitted(image, size)).permute(2, 0, 1).contiguous()
    grey = image.convert("L")
    if grey.size == size:
        return _tensor(grey).unsqueeze(0)
    light = _light_on_dark(pixels_of(grey))
    if frame.cut == "ink" and (cut := _framed(light, frame)) is not None:
        return torch.from_numpy(cut).unsqueeze(0)
    inverted = Image.fromarray((light * 255).round().astype(np.uint8))
    return _tensor(_fitted(inverted, size)).unsqueeze(0)


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise Refusal(
            413,
            f"The image is {width} by {height} pixels: expected at most {MAX_PIXELS // 1_000_000} million in all and "
            f"{MAX_SIDE} on a side.",
        )


def _fitted(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Scale with antialiasing to cover the size, and cut around the middle."""
    return image if image.size == size else ImageOps.fit(image, size, Image.Resampling.LANCZOS)


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(pixels_of(image))


def _light_on_dark(grey: Pixels) -> Pixels:
    """The border is ground: it becomes 0, and the ink that differs most from it 1."""
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    ground = float(np.median(border))
    light = (ground - grey) if ground > 0.5 else (grey - ground)
    most = float(light.max())
    return (light / most).clip(0, 1) if most > 0 else np.zeros_like(light)


def _framed(light: Pixels, frame: Frame) -> Pixels | None:
    """The ink alone, as large and in the place where the training images have it; None if there is none."""
    if frame.slant == "removed":
        light = _upright(light)
    rows, columns = (np.flatnonzero((light > FAINT).any(axis)) for axis in (1, 0))
    if not len(rows):
        return None
    ink = light[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    down, right = frame.scales(*ink.shape)
    height, width = max(1, round(ink.shape[0] * down * SCALE)), max(1, round(ink.shape[1] * right * SCALE))
    scaled = Image.fromarray(ink).resize((width, height), Image.Resampling.BILINEAR)
    fine = np.zeros((frame.height * SCALE, frame.width * SCALE), dtype=np.float32)
    top, left = (fine.shape[0] - height) // 2, (fine.shape[1] - width) // 2
    fine[top : top + height, left : left + width] = np.asarray(scaled)
    return settle(_broadened(fine, frame), frame)


def _upright(light: Pixels) -> Pixels:
    """Shear about the middle row, in a wider image where that is needed."""
    rows, columns = np.nonzero(light > FAINT)
    if not len(rows):
        return light
    shear = slope(columns.astype(np.float64), rows.astype(np.float64), light[rows, columns].astype(np.float64))
    margin = round(abs(shear) * len(light) / 2)
    image = Image.fromarray(np.pad(light, ((0, 0), (margin, margin))))
    straight = (1, shear, -shear * len(light) / 2, 0, 1, 0)  # where a pixel comes from
    return np.asarray(image.transform(image.size, Image.Transform.AFFINE, straight, Image.Resampling.BILINEAR))


def _broadened(fine: Pixels, frame: Frame) -> Pixels:
    """Widen strokes on all sides until there is as much ink as in a training image."""
    image = Image.fromarray((fine * 255).round().astype(np.uint8))
    for _ in range(SCALE // 2):
        if frame.ink is None or float(pixels_of(image).mean()) >= frame.ink:
            break
        image = image.filter(ImageFilter.MaxFilter(3))
    return pixels_of(image)
