"""Files that are sound for torch and are refused all the same: what they would cost stands in no relation to them."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from contextual_dropout._torch_files import read_torch
from tests.archives import Reserve, laughing, packed_again, saved, slow_key, two_faced


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
    content = packed_again(saved({"a": torch.zeros(10**6)}))
    assert len(content) < 10**5
    refused(tmp_path / "f", content, "compressed, or overlap")


@pytest.mark.parametrize("new", [True, False])
def test_memory_that_a_pickle_asks_for_is_not_given(tmp_path: Path, new: bool) -> None:
    refused(tmp_path / "f", saved(Reserve(), _use_new_zipfile_serialization=new), "a bytearray")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_twice_is_refused(tmp_path: Path) -> None:
    """Which of them torch would read, nobody has looked at."""
    content = packed_again(saved({"a": torch.zeros(3)}), zipfile.ZIP_STORED, twice=True)
    refused(tmp_path / "f", content, "two parts of the same name")


def test_a_wrong_checksum_is_noticed(tmp_path: Path) -> None:
    content = saved({"a": torch.ones(100)})
    at = content.index(torch.ones(100).numpy().tobytes())
    refused(tmp_path / "f", content[:at] + b"\x01" + content[at + 1 :], "Bad CRC-32 for file .*data/0")


def test_what_torch_would_find_elsewhere_in_the_file_is_not_read(tmp_path: Path) -> None:
    content = two_faced(shown={"a": torch.ones(1)}, hidden={"a": torch.zeros(10**6)})
    (tmp_path / "f").write_bytes(content)
    assert len(content) < 10**4
    assert torch.load(tmp_path / "f", weights_only=True)["a"].shape == (10**6,)
    assert torch.equal(read_torch(tmp_path / "f")["a"], torch.ones(1))


def contains_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (laughing(), r"bytes stand for \d{13} values"),
        ({(1, 2): {"a": tuple(laughing())}}, r"bytes stand for \d{13} values"),
        (torch.zeros(1).expand(10**12), "bytes stand for 1000000000000 values"),
        (contains_itself(), "contains itself"),
    ],
)
def test_a_few_bytes_that_stand_for_many_values_are_refused(
    tmp_path: Path, content: Any, message: str, new: bool
) -> None:
    """Whoever copies or shows them would never come to an end."""
    refused(tmp_path / "f", saved(content, _use_new_zipfile_serialization=new), message)


@pytest.mark.parametrize("new", [True, False])
def test_a_key_that_takes_hours_to_hash_is_refused(tmp_path: Path, new: bool) -> None:
    refused(tmp_path / "f", slow_key(new=new), r"a tuple of \d+ values, more than")


def test_a_short_key_is_hashed(tmp_path: Path) -> None:
    """The same file with fewer tuples is sound: what is refused is their number."""
    (tmp_path / "f").write_bytes(slow_key(depth=3))
    pair = ((), ())
    assert read_torch(tmp_path / "f") == {((pair, pair), (pair, pair)): 1}


def test_values_that_are_shared_are_read(tmp_path: Path) -> None:
    weight = torch.arange(1000.0)
    torch.save({"weight": weight, "tied": weight, "again": weight.view(10, 100)}, tmp_path / "f")
    assert torch.equal(read_torch(tmp_path / "f")["tied"], weight)
