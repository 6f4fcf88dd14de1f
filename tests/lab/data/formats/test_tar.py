from __future__ import annotations

import contextlib
import io
import lzma
import os
import tarfile
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.formats import tar
from contextual_dropout_lab.data.formats.tar import read_tar

CONTENTS = {"a/one": b"1" * 700, "a/two": b"", "three": b"3" * 512}


def packed(
    contents: dict[str, bytes], format: int = tarfile.PAX_FORMAT, extra: tuple[tarfile.TarInfo, ...] = ()
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for member in extra:
            archive.addfile(member)
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def read(content: bytes) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some.tar")
        path.write_bytes(content)
        files = {name: bytes(part) for name, part in read_tar(path).items()}
        assert os.listdir(folder) == ["some.tar"]
        return files


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_are_read_in_order(format: int) -> None:
    long = {"./" + "n" * 90: b"4", "d" * 60 + "/" + "m" * 90: b"5"}
    files = read(packed(CONTENTS | long, format))
    assert list(files.items()) == [(name.removeprefix("./"), part) for name, part in (CONTENTS | long).items()]


def test_names_that_lead_out_are_only_names() -> None:
    contents = {"../escape": b"x", "/tmp/absolute-of-test-tar": b"y"}
    assert read(packed(contents)) == contents
    assert not Path("/tmp/absolute-of-test-tar").exists()


def test_links_devices_and_folders_are_left_out() -> None:
    extra = (
        special("link", tarfile.SYMTYPE, "/etc/passwd"),
        special("hard", tarfile.LNKTYPE, "three"),
        special("device", tarfile.CHRTYPE),
        special("pipe", tarfile.FIFOTYPE),
        special("folder", tarfile.DIRTYPE),
    )
    assert read(packed(CONTENTS, extra=extra)) == CONTENTS


def test_a_sparse_file_that_declares_a_terabyte_is_left_out() -> None:
    member = tarfile.TarInfo("sparse")
    member.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**40), "GNU.sparse.name": "sparse"}
    assert read(packed(CONTENTS, extra=(member,))) == CONTENTS


def test_a_file_twice_is_refused() -> None:
    with pytest.raises(DataError, match=r"some\.tar has three twice"):
        read(packed({"three": b"first", "./three": b"second"}))


def test_a_member_that_declares_more_than_there_is_is_refused() -> None:
    member = tarfile.TarInfo("large")
    member.size = 2**40
    with pytest.raises(DataError, match=r"some\.tar"):
        read(member.tobuf() + bytes(4096))


@pytest.mark.parametrize("size", [-512, -1024, -1536, -10240])
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_negative_size_does_not_lead_back(size: int, format: int) -> None:
    """Some versions of tarfile would read the same member for ever."""
    member = tarfile.TarInfo("back")
    if format == tarfile.PAX_FORMAT:
        member.pax_headers = {"size": str(size)}
    header = bytearray(member.tobuf(format))
    if format == tarfile.GNU_FORMAT:
        header[124:136] = (256**12 + size).to_bytes(12, "big")
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header[:512])
    with pytest.raises(DataError, match=r"some\.tar is not a sound tar archive"):
        read(bytes(header) + bytes(10240))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_chain_of_headers_is_refused(kind: bytes) -> None:
    """tarfile reads each inside of the one before it."""
    member = special("chain", kind)
    content = b"9 path=x\n" if kind == tarfile.XHDTYPE else b"x"
    member.size = len(content)
    link = member.tobuf(tarfile.GNU_FORMAT) + content.ljust(512, b"\0")
    with pytest.raises(DataError, match="recursion"):
        read(2000 * link + packed(CONTENTS))


def test_too_many_members_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar, "MAX_MEMBERS", 3)
    assert read(packed(CONTENTS)) == CONTENTS
    with pytest.raises(DataError, match=r"some\.tar has more than 3 files and folders"):
        read(packed(CONTENTS | {"four": b""}))


def test_padding_takes_neither_time_nor_memory(tmp_path: Path) -> None:
    """100 MB of zeros after the end are looked at where they are."""
    path = tmp_path / "long.tar"
    path.write_bytes(packed(CONTENTS) + bytes(100 * 2**20))
    tracemalloc.start()
    try:
        assert set(read_tar(path)) == set(CONTENTS)
        assert tracemalloc.get_traced_memory()[1] < 150 * 2**20
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar, "MAX_BYTES", 10**6)
    path = tmp_path / "bomb.tar.xz"
    path.write_bytes(lzma.compress(packed({"zeros": bytes(10**7)})))
    with pytest.raises(DataError, match=r"bomb.tar.xz holds more than 1000000 bytes"):
        read_tar(path)


def test_every_truncation_is_refused() -> None:
    content = packed(CONTENTS)
    end = content.index(b"3" * 512) + 512
    for size in [*range(0, end, 64), end]:
        with pytest.raises(DataError, match=r"some\.tar"):
            read(content[:size])


def test_a_damaged_header_is_not_the_end() -> None:
    content = bytearray(packed(CONTENTS, tarfile.USTAR_FORMAT))
    content[content.index(b"three")] ^= 1
    with pytest.raises(DataError, match="damaged or truncated after 2 files"):
        read(bytes(content))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]), st.data())
def test_mutated_archives_are_read_or_refused(format: int, data: st.DataObject) -> None:
    content = bytearray(packed({"n" * 150: b"1"} if format != tarfile.USTAR_FORMAT else CONTENTS, format))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, 2000))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):  # so that it is not the checksum alone that refuses
        content[148:156] = b"%06o\0 " % (256 + sum(content[:148]) + sum(content[156:512]))
    with contextlib.suppress(DataError):
        read(bytes(content))
