from __future__ import annotations

import contextlib
import gzip
import lzma
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.formats.compressed import read_whole

MEGABYTE = 2**20
Packer = Callable[[bytes], bytes]
PACKERS: list[Packer] = [bytes, gzip.compress, lzma.compress]


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("size", [0, 1, 1000, 3 * MEGABYTE])
def test_what_was_written_is_read(tmp_path: Path, pack: Packer, size: int) -> None:
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    path = tmp_path / "some"
    path.write_bytes(pack(content))
    assert read_whole(path, size) == content
    if size:
        with pytest.raises(DataError, match=f"some holds more than {size - 1} bytes"):
            read_whole(path, size - 1)


@pytest.mark.parametrize("pack", PACKERS[1:])
def test_a_bomb_is_stopped_at_the_limit(tmp_path: Path, pack: Packer) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(pack(bytes(100 * MEGABYTE)))
    assert path.stat().st_size < MEGABYTE
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="holds more than 1048576 bytes"):
            read_whole(path, MEGABYTE)
        assert tracemalloc.get_traced_memory()[1] < 20 * MEGABYTE  # 8 are the dictionary of xz
    finally:
        tracemalloc.stop()


def test_an_xz_file_that_wants_a_huge_dictionary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.xz"
    content = bytearray(lzma.compress(bytes(1000), filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**20}]))
    content[16] = 40  # the size of the dictionary in the block header: 4 GiB
    content[20:24] = _crc32(content[12:20])
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"some.xz cannot be decompressed \(Memory usage limit exceeded\)"):
        read_whole(path, 1000)


def _crc32(content: bytes | bytearray) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little")


@pytest.mark.parametrize("pack", PACKERS[1:])
def test_truncated_and_continued_streams_are_refused(tmp_path: Path, pack: Packer) -> None:
    path, content = tmp_path / "some", pack(b"twelve bytes" * 50)
    for size in range(6, len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match="some ends within its compressed stream: the file is truncated"):
            read_whole(path, 1000)
    path.write_bytes(content + b"\0")
    with pytest.raises(DataError, match="some has bytes after its compressed stream"):
        read_whole(path, 1000)


@settings(deadline=None)
@given(st.sampled_from(PACKERS[1:]), st.data())
def test_a_changed_byte_is_refused_or_makes_no_difference(pack: Packer, data: st.DataObject) -> None:
    content = bytearray(pack(b"twelve bytes" * 50))
    content[data.draw(st.integers(6, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some")
        path.write_bytes(content)
        with contextlib.suppress(DataError):
            assert read_whole(path, 1000) == b"twelve bytes" * 50


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="is not a file"):
            read_whole(path, 10)
