"""Progressive JPEG files that are drawn over again and again."""

from __future__ import annotations

import io

from PIL import Image


def drawn_over(times: int, size: tuple[int, int] = (16, 16), between: bytes = b"") -> bytes:
    """The last scan so often, with something put before each: every one takes the decoder the time of all pixels."""
    file = io.BytesIO()
    Image.new("L", size, 90).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:last] + times * (between + content[last:-2]) + content[-2:]
