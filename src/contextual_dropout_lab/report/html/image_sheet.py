"""Images as one sheet of tiles: a single file for hundreds of small images."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

__all__ = ["COLUMNS", "sheet", "small"]

#: Tiles in a line of a sheet.
COLUMNS = 32
#: Grey levels of a tile: noise does not compress, and more of them cannot be distinguished.
LEVELS = 32
#: Pixels of the longer side of a tile.
LARGEST = 96


def small(images: Tensor) -> Tensor:
    """Images whose longer side is at most ``LARGEST``: larger ones are averaged over squares of pixels.

    Example:
        >>> import torch
        >>> small(torch.rand(5, 3, 240, 320)).shape, small(torch.rand(5, 28, 28)).shape
        (torch.Size([5, 3, 60, 80]), torch.Size([5, 28, 28]))
    """
    step = -(-max(images.shape[-2:]) // LARGEST)
    return images if step == 1 else F.avg_pool2d(images, step)


def sheet(images: Tensor) -> str:
    """Images as the tiles of one image, line by line, as a ``data:`` address.

    Args:
        images: (N, H, W) or (N, C, H, W) with C of 1 or 3; 0 is black and 1 is white. An image that goes beyond that,
            as noisy ones do, is brought into the range.

    Example:
        >>> import torch
        >>> sheet(torch.rand(3, 4, 4))[:30]
        'data:image/png;base64,iVBORw0K'
    """
    tiles = images.reshape(len(images), -1, *images.shape[-2:]).double()  # (N, C, H, W)
    low, high = tiles.amin((1, 2, 3), keepdim=True).clamp(max=0), tiles.amax((1, 2, 3), keepdim=True).clamp(min=1)
    steps = ((tiles - low) / (high - low) * (LEVELS - 1)).round() * (255 / (LEVELS - 1))
    count, channels, height, width = tiles.shape
    lines = max(math.ceil(count / COLUMNS), 1)
    canvas = np.zeros((lines * height, COLUMNS * width, channels), np.uint8)
    for index, tile in enumerate(steps.permute(0, 2, 3, 1).numpy().astype(np.uint8)):
        top, left = index // COLUMNS * height, index % COLUMNS * width
        canvas[top : top + height, left : left + width] = tile
    # Photographs with noise are several times larger as PNG.
    kind = "JPEG" if channels == 3 else "PNG"
    file = io.BytesIO()
    Image.fromarray(canvas if channels == 3 else canvas[..., 0]).save(file, kind, optimize=True, quality=85)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
