"""JPEG files that would keep the decoder busy for hours are refused, others are not."""

from __future__ import annotations

import pytest

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.jpeg_png import MAX_SCANS, decode
from contextual_dropout_lab.data.vqa.visual import decode_whole
from tests.lab.data.scans import drawn_over

REFUSED = f"some.jpg cannot be decoded .it is drawn in more than {MAX_SCANS} scans"
#: Bytes that look like a scan and are none: a comment of the declared length.
COMMENT = b"\xff\xfe\x00\xc8" + 99 * b"\xff\xda"


@pytest.mark.parametrize(
    "between",
    [
        b"",
        b"\xff\xff\xff",  # which may be put before any marker
        b"\xff\xd3",  # a restart, which has no length
        b"\x12\xff\x00\x34",  # pixels that nobody needs
        b"\xff\xfe\x00\x04hi",
        b"\xff\x02\xff\xff",  # of which libjpeg, searching for a restart, does not take the length
    ],
)
def test_thousands_of_scans_are_refused(between: bytes) -> None:
    content = drawn_over(5000, between=between)
    with pytest.raises(DataError, match=REFUSED):
        decode(content, 8, "some.jpg")
    with pytest.raises(DataError, match=REFUSED):
        decode_whole(memoryview(content), "some.jpg")


@pytest.mark.parametrize("content", [drawn_over(50), drawn_over(3, between=COMMENT), drawn_over(1) + 999 * b"\xff\xda"])
def test_what_is_decoded_in_no_time_is_not_refused(content: bytes) -> None:
    assert (decode(content, 8, "some.jpg") == 90).all()
