"""Files that are sound for torch and are refused all the same: what they would cost stands in no relation to them."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from contextual_dropout.models.torch_files import read_torch


class Reserve:
    """In a pickle, so many bytes of memory."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (self.size,)


def saved(content: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


def packed_again(content: bytes, method: int, twice: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(file, "w", method) as target:
        for member in source.infolist():
            for _ in range(1 + (twice and member.filename.endswith("/data/0"))):
                target.writestr(member.filename, source.read(member))
    return file.getvalue()


def refused(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(Exception, match=message):
            read_torch(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("new", [True, False])
def test_what_was_saved_is_read(tmp_path: Path, new: bool) -> None:
    content = {"a": torch.arange(3), "b": [1, 2.5, "text", None]}
    torch.save(content, tmp_path / "f", _use_new_zipfile_serialization=new)
    found = read_torch(tmp_path / "f")
    assert torch.equal(found["a"], content["a"])
    assert found["b"] == content["b"]


def test_compressed_parts_are_not_inflated(tmp_path: Path) -> None:
    content = packed_again(saved({"a": torch.zeros(10**6)}), zipfile.ZIP_DEFLATED)
    assert len(content) < 10**5
    refused(tmp_path / "f", content, "compressed, or overlap")


@pytest.mark.parametrize("new", [True, False])
def test_memory_that_a_pickle_asks_for_is_not_given(tmp_path: Path, new: bool) -> None:
    refused(tmp_path / "f", saved(Reserve(10**9), _use_new_zipfile_serialization=new), "a bytearray")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_twice_is_refused(tmp_path: Path) -> None:
    """Which of them torch would read, nobody has looked at."""
    content = packed_again(saved({"a": torch.zeros(3)}), zipfile.ZIP_STORED, twice=True)
    refused(tmp_path / "f", content, "two parts of the same name")


def test_a_wrong_checksum_is_noticed(tmp_path: Path) -> None:
    content = saved({"a": torch.ones(100)})
    at = content.index(torch.ones(100).numpy().tobytes())
    refused(tmp_path / "f", content[:at] + b"\x01" + content[at + 1 :], "the checksum of .*data/0 is wrong")
