"""Files as torch.save writes them, and archives as it never does."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any

import torch


class Reserve:
    """In a pickle, a gigabyte of memory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (10**9,)


def saved(content: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


def packed_again(content: bytes, method: int = zipfile.ZIP_DEFLATED, twice: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(file, "w", method) as target:
        for member in source.infolist():
            for _ in range(1 + (twice and member.filename.endswith("/data/0"))):
                target.writestr(member.filename, source.read(member))
    return file.getvalue()


def two_faced(shown: Any, hidden: Any) -> bytes:
    """An archive in which Python finds one content and torch another, which is compressed.

    Both are told the size of the list of parts and where it begins. That is true of the hidden one, where torch looks;
    Python takes the list right before the end, and believes that something was put before the archive.
    """
    parts, listed = _taken_apart(packed_again(saved(hidden)))
    before, last = _taken_apart(packed_again(saved(shown), zipfile.ZIP_STORED))
    assert len(listed) == len(last)
    assert len(parts) >= len(before)
    moved, at = bytearray(last), 0
    while at < len(moved):  # Python will add the length of what lies between the two lists
        (start,) = struct.unpack_from("<I", moved, at + 42)
        struct.pack_into("<I", moved, at + 42, start + len(parts) - len(before))
        at += 46 + sum(struct.unpack_from("<HHH", moved, at + 28))
    count = moved.count(b"PK\1\2")
    return (
        parts
        + listed
        + before
        + moved
        + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(moved), len(parts), 0)
    )


def laughing(depth: int = 40) -> list[Any]:
    """Two to the power of ``depth`` values in a few hundred bytes."""
    value: list[Any] = [1]
    for _ in range(depth):
        value = [value, value]
    return value


def _taken_apart(archive: bytes) -> tuple[bytes, bytes]:
    """The parts, and the list of them."""
    size, start = struct.unpack_from("<II", archive, archive.rindex(b"PK\5\6") + 12)
    return archive[:start], archive[start : start + size]


def slow_key(depth: int = 60, new: bool = True) -> bytes:
    """A dictionary whose key is a tuple of one tuple twice, which is one of another twice, and so on."""
    tuples = b"".join(b"h" + bytes([n, *b"\x86q", n + 1]) for n in range(depth))  # of what was made last, twice
    pickled = b"\x80\x02}()q\x00" + tuples + b"K\x01u."
    if not new:
        return pickled
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved({}))) as source, zipfile.ZipFile(file, "w") as target:
        for member in source.infolist():
            target.writestr(member.filename, pickled if member.filename.endswith(".pkl") else source.read(member))
    return file.getvalue()
