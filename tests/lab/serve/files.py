"""Image files: sound ones of every kind, and hostile ones."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

from tests.lab.data.scans import drawn_over


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture(mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def two_runs(side: int) -> Image.Image:
    """Ink on two neighbouring rows, at either end of a white sheet: as slanted as ink can be."""
    sheet = np.full((side, side), 255, dtype=np.uint8)
    sheet[side // 2, 5:15] = sheet[side // 2 + 1, -15:-5] = 0
    return Image.fromarray(sheet)


def declaring(width: int, height: int) -> bytes:
    """A PNG file of a few bytes that declares this many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


SOUND = {
    "grey": encoded(picture("L")),
    "transparent": encoded(picture("RGBA")),
    "palette": encoded(picture("P")),
    "bitmap": encoded(picture("1")),
    "16 bits": encoded(Image.fromarray(np.full((9, 9), 40_000, dtype=np.uint16))),
    "jpeg": encoded(picture(), "JPEG"),
    "cmyk": encoded(picture("CMYK"), "JPEG"),
    "rotated": encoded(
        picture(),
        "JPEG",
        exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00",
    ),
    "animated": encoded(picture("P"), "GIF", save_all=True, append_images=[picture("P")]),
    "webp": encoded(picture(), "WEBP"),
    "bmp": encoded(picture(), "BMP"),
    "one pixel": encoded(picture(size=(1, 1))),
    "a line": encoded(picture(size=(3000, 1))),
    "black": encoded(Image.new("L", (50, 50))),
    "as trained": encoded(picture("L", (8, 8))),
    "two runs of ink": encoded(two_runs(2048)),
}
HOSTILE = {
    "text": (b"hello", 415),
    "nothing but zeros": (bytes(1000), 415),
    "cut off": (SOUND["jpeg"][: len(SOUND["jpeg"]) // 2], 415),
    "only a header": (SOUND["grey"][:33], 415),
    "tiff": (encoded(picture(), "TIFF"), 415),
    "postscript": (encoded(picture(), "EPS"), 415),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", 415),
    "a page": (b"<!doctype html><script>alert(1)</script>", 415),
    "40 million pixels": (declaring(8000, 5000), 413),
    "more than Pillow warns of": (declaring(10_000, 10_000), 413),
    "a bomb": (declaring(60_000, 60_000), 413),
    "more than memory": (declaring(2**31 - 1, 2**31 - 1), 413),
    "a very long line": (declaring(20_000, 1), 413),
    "5,000 scans": (drawn_over(5000), 415),
    "no height": (declaring(100, 0), 415),
}
