from __future__ import annotations

import contextlib
import os
import pickle
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.formats import pickles
from contextual_dropout_lab.data.formats.pickles import read_pickle
from tests.lab.data.pickled import array_of, batch, pickled

MEGABYTE = 2**20
SMALL = array_of(np.arange(6, dtype=np.uint8), (2, 3))


class Harm:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


def test_a_batch_is_what_was_pickled() -> None:
    content, images, labels = batch()
    read = read_pickle(content, "some")
    assert read["labels"] == labels
    assert read["filenames"] == [f"image {i}" for i in range(20)]
    assert isinstance(read["data"], np.ndarray)
    assert np.array_equal(read["data"], images)


def test_python_agrees(real: Path) -> None:
    path = real / "cifar10" / "cifar-10-batches-py" / "batches.meta"
    if not path.is_file():
        pytest.skip("no cifar10 here")
    content = path.read_bytes()
    assert read_pickle(content, path) == pickle.loads(content, encoding="latin1")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_hostile_pickles_are_refused_unexecuted(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "marker"
    for harm in (Harm(marker), {"data": Harm(marker)}, [Harm(marker)], {"labels": [1, 2], "data": (Harm(marker),)}):
        content = pickle.dumps(harm, protocol)
        with pytest.raises(DataError, match=r"some/file is not a python batch of CIFAR: .* no code in it was run"):
            read_pickle(content, "some/file")
    assert not marker.exists()
    pickle.loads(content)  # they are hostile indeed
    assert marker.exists()


@pytest.mark.parametrize(
    "name",
    [
        b"os\nsystem\n",
        b"posix\nsystem\n",
        b"builtins\neval\n",
        b"__builtin__\neval\n",
        b"numpy\nload\n",
        b"numpy.core.multiarray\nfromfile\n",
        b"numpy core.multiarray\n_reconstruct\n",
        b"numpy\nndarray.tofile\n",
        b"numpy.testing._private.utils\nrunstring\n",
    ],
)
def test_no_other_name_is_admitted(name: bytes) -> None:
    with pytest.raises(DataError, match="it names"):
        read_pickle(b"\x80\x02}(U\x04datac" + name + b"U\x04true\x85Ru.", "some")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1 bytes were to follow byte 0, but 0 do"),
        (b"<html>", "instruction b'<' at byte 0"),
        (b"\x80\x04}.", "its protocol is 4, that of CIFAR is 2"),
        (b"\x80\x02].", "preceded by a dict"),
        (b"\x80\x02.", "preceded by a dict"),
        (b"\x80\x02}.}", "has bytes after its end at byte 4"),
        (b"\x80\x02(q\x01", "preceded by a value"),
        (b"\x80\x02h\x07", "nothing was kept under 7"),
        (b"\x80\x02}(K\x01K\x02u.", "a key that is not a string"),
        (b"\x80\x02}(U\x01au.", "a key that is not a string, or has no value"),
        (b"\x80\x02}K\x01u.", "preceded by a Mark"),
        (b"\x80\x02](U\x01aK\x01u.", "preceded by a dict"),
        (b"\x80\x02cnumpy\nndarray\n)R", "instruction b'\\)'"),
        (b"\x80\x02cnumpy\nndarray\nK\x01\x85R", "something other than an array of uint8"),
        (b"\x80\x02cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R", "something other than an array of uint8"),
        (b"\x80\x02}K\x01\x85b", "something other than an array"),
        (b"\x80\x02T\xff\xff\xff\xff", "-1 bytes were to follow"),
        (b"\x80\x02T\xff\xff\xff\x7f", "2147483647 bytes were to follow"),
        (b"\x80\x02c" + b"a" * 1000, "it names|bytes were to follow"),
        (array_of(np.zeros(6, np.uint8), (2, 4)), "array of 6 bytes does not have the two sides"),
        (array_of(np.zeros(6, np.uint8), (-2, -3)), "does not have the two sides"),
        (array_of(np.zeros(6, np.uint8), (6,)), "does not have the two sides"),
        (array_of(np.zeros(0, np.uint8), (0, 2**31 - 1)), "does not have the two sides"),
        (array_of(np.zeros(6, np.float32), (2, 3)), "something other than an array of uint8"),
    ],
)
def test_what_is_not_cifar_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pickle(content, "some")


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}r\xff\xff\xff\x7f.",  # an entry of the memo with a huge number
        b"\x80\x02T" + struct.pack("<i", 2**31 - 1),
        array_of(np.zeros(6, np.uint8), (2**31 - 1, 2**31 - 1)),
    ],
)
def test_a_declared_size_takes_no_memory(content: bytes) -> None:
    tracemalloc.start()
    try:
        if content.endswith(b"\x7f."):
            read_pickle(content, "some")
        else:
            with pytest.raises(DataError):
                read_pickle(content, "some")
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()


def test_instructions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_INSTRUCTIONS", 1000)
    with pytest.raises(DataError, match="it has more than 1000 instructions"):
        read_pickle(b"\x80\x02" + b"]" * 5000, "some")


def test_tuples_of_tuples_take_no_time() -> None:
    laughs = b"K\x01\x85q\x00" + b"h\x00\x86q\x00" * 200
    read_pickle(b"\x80\x02}(U\x01a" + laughs + b"u.", "some")
    with pytest.raises(DataError, match="a key that is not a string"):
        read_pickle(b"\x80\x02}(" + laughs + b"K\x01u.", "some")


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_mutated_and_truncated_pickles_are_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([SMALL, pickled({"label_names": ["a", "b"], "n": 300})])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4)) or b"."
    with contextlib.suppress(DataError):
        read_pickle(content[: data.draw(st.integers(0, len(content)))], "some")


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from([*pickles.INSTRUCTIONS, b"\x01", b"U\x01a", b"K\x02", b"cnumpy\ndtype\n", b"."])))
def test_any_program_is_read_or_refused(program: list[bytes]) -> None:
    with contextlib.suppress(DataError):
        read_pickle(b"".join([b"\x80\x02", *program, b"."]), "some")


def test_every_truncation_is_refused() -> None:
    for size in range(len(SMALL)):
        with pytest.raises(DataError):
            read_pickle(SMALL[:size], "some")
