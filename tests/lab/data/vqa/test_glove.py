from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.vqa import WordVectors, WordVocabulary, read_vectors


def read(folder: Path, content: bytes, words: tuple[str, ...] = ("red", "blue"), size: int = 3) -> WordVectors:
    path = folder / "glove.txt"
    path.write_bytes(content)
    return read_vectors(path, WordVocabulary(words), torch.Generator().manual_seed(0), size)


def test_vectors_are_those_of_their_words(tmp_path: Path) -> None:
    content = b"blue 1 -2 3e-1\r\n. . . 9 9 9\nred 0.5 0 -0\nblue 7 7 7"
    result = read(tmp_path, content)
    assert result.vectors.dtype == torch.float32
    torch.testing.assert_close(result.vectors[2:], torch.tensor([[0.5, 0, 0], [1, -2, 0.3]]))
    assert result.vectors[0].tolist() == [0, 0, 0]
    assert result.missing == ()
    assert (read(tmp_path, content).vectors == result.vectors).all()


def test_missing_words_are_drawn_on_the_scale_of_the_others(tmp_path: Path) -> None:
    words = ("red", *(f"word{number}" for number in range(3000)))
    result = read(tmp_path, b"red 3 -4 0\n", words)
    assert result.missing == words[1:]
    drawn = result.vectors[[1, *range(3, 3002)]]
    assert drawn.mean().abs() < 4.3 * math.sqrt(25 / 3 / drawn.numel())
    assert drawn.square().mean().item() == pytest.approx(25 / 3, rel=4.3 * math.sqrt(2 / drawn.numel()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"red 1 2 3\nblue 1 2\n", "line 2 has 2 numbers after its word: expected a word and 3 numbers"),
        (b"red 1 2 3\n\nblue 1 2 3\n", "line 2 has no word"),
        (b" 1 2 3\n", "line 1 has no word"),
        (b"400000 3\n", "line 1 has 1 numbers"),
        (b"red 1 2 3\nblue 1 x 3\n", "line 2, the word 'blue', has something else than numbers"),
        (b"blue 1 nan 3\n", "line 1, the word 'blue', has a number that is not finite"),
        (b"blue 1 1e39 3\n", "not finite"),
        (b"green 1 2 3\n", "has none of the 2 words with 3 numbers"),
        (b"red 1 2 3 4\n", "has none of the 2 words with 3 numbers.*is size right"),
        (b"", "has none of the 2 words"),
        (b"PK\x03\x04\xff\xfe 1 2 3\n", "line 1 is not UTF-8.*is it packed"),
        (b"red 1 2 3\n" + b"x" * 10_000, "line 2 has more than 1120 bytes"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt is not a file"):
        read_vectors(tmp_path / "none.txt", WordVocabulary(("red",)), torch.Generator())


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_data_errors_only(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = read(Path(folder), b"red 1 2 3\n" + content)
        except DataError:
            return
    assert result.vectors.isfinite().all()
