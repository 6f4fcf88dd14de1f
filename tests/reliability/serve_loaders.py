"""What visitors of the live page send: image files of every kind that is decoded, and drawings."""

from __future__ import annotations

from pathlib import Path

from contextual_dropout_lab.serve.drawings import render
from contextual_dropout_lab.serve.frames import frame_for
from contextual_dropout_lab.serve.refusal import Refusal
from contextual_dropout_lab.serve.requests import read_strokes
from contextual_dropout_lab.serve.uploads import open_image, to_pixels
from tests.lab.serve.files import encoded, picture
from tests.reliability.loaders import Loader, only, part, value
from tests.reliability.mutations import as_json

DRAWING = {"strokes": [[[0.1, 0.2], [0.3, 0.4], [0.9, 0.5]], [[0.5, 0.5]]]}


def visitors() -> dict[str, Loader]:
    files = [encoded(picture("P"), "GIF", save_all=True, append_images=[picture("P")])]
    files += [encoded(picture(), kind) for kind in ("WEBP", "BMP", "PNG")]
    files += [encoded(picture(), "JPEG", progressive=progressive) for progressive in (True, False)]
    return {
        "upload": Loader(tuple(part("f", file) for file in files), only(_upload), (Refusal,)),
        "drawing": Loader((value("f", DRAWING), part("f", as_json(DRAWING))), only(_drawing), (Refusal,)),
    }


def _upload(path: Path) -> object:
    return to_pixels(open_image(path.read_bytes()), 3, frame_for("cifar10", 32, 32))


def _drawing(path: Path) -> object:
    return render(read_strokes(path.read_bytes()), frame_for("digits", 8, 8))
