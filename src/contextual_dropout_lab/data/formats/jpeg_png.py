"""Read an image file, JPEG or PNG, as a tensor of a given size; the file need not be trusted."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["MAX_PIXELS", "MAX_SCANS", "SUFFIXES", "check_scans", "decode"]

#: Images of more pixels than this are refused before they are decoded: 64 Mi, 192 MiB once decoded.
MAX_PIXELS = 2**26

#: So are JPEG files of more scans: progressive ones have about ten, and each takes the time of all pixels, however
#: short it is.
MAX_SCANS = 64

#: Markers of JPEG that are followed by a length, and the end; what is between them is skipped as libjpeg does.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
_END, _SCAN = 0xD9, 0xDA

#: How the names of image files end, in lower case.
SUFFIXES = (".jpeg", ".jpg", ".png")


def decode(content: bytes | memoryview, size: int, name: str, grey: bool = False) -> Tensor:
    """The image, scaled to cover a square and cut to it around its middle.

    A JPEG whose pixels alone are damaged may decode to other pixels: the format has no checksum.

    Args:
        content: of the file.
        size: the side of the square.
        name: of the file, for messages.
        grey: whether colours are to become grey.

    Returns:
        (3, size, size) uint8, grey images and those with a palette become coloured; (size, size) if ``grey``.

    Raises:
        DataError: the file is truncated, damaged, neither JPEG nor PNG, or of more than :data:`MAX_PIXELS` or
            :data:`MAX_SCANS`; names it.

    Example:
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.new("L", (30, 20), 7).save(file, "PNG")
        >>> decode(file.getvalue(), 16, "grey.png").unique(), decode(file.getvalue(), 16, "grey.png").shape
        (tensor([7], dtype=torch.uint8), torch.Size([3, 16, 16]))
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise DataError("images are decoded by Pillow, which is not installed: pip install pillow") from error
    try:
        check_scans(content)
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as image:
            _check_pixels(image)
            plain = image.convert("L" if grey else "RGB")
        if plain.size != (size, size):
            plain = ImageOps.fit(plain, (size, size), Image.Resampling.BILINEAR)
    except Exception as error:  # the decoders of Pillow raise whatever comes: SyntaxError, struct.error, ...
        raise DataError(f"{name} cannot be decoded ({error}): expected a sound JPEG or PNG file") from error
    pixels = torch.from_numpy(np.array(plain))
    return pixels if grey else pixels.permute(2, 0, 1).contiguous()


def check_scans(content: bytes | memoryview) -> None:
    """Refuse a JPEG file of thousands of scans before it keeps the decoder busy for hours; other files have none.

    Raises:
        ValueError: it has more than :data:`MAX_SCANS`.
    """
    at = scans = 0
    while content[:2] == b"\xff\xd8" and (marker := _MARKER.search(content, at)) and marker[0][1] != _END:
        scans += marker[0][1] == _SCAN
        if scans > MAX_SCANS:
            raise ValueError(f"it is drawn in more than {MAX_SCANS} scans")
        at = marker.end() + int.from_bytes(content[marker.end() : marker.end() + 2], "big")


def _check_pixels(image: Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"it declares {image.width} by {image.height} pixels, more than {MAX_PIXELS} in all")
