"""Word vectors in the text format of GloVe: a line for every word, the word and its numbers apart by spaces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.vqa.words import PAD, WordVocabulary

__all__ = ["WordVectors", "read_vectors"]

#: Lines of more bytes than 32 a number and 1,024 for the word are refused; GloVe writes about 9 a number.
NUMBER_BYTES, WORD_BYTES = 32, 1024

LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The initial embedding of a vocabulary.

    Attributes:
        vectors: (V, D) float32, row i is word number i.
        missing: the words that the file does not have.
    """

    vectors: Tensor
    missing: tuple[str, ...]


def read_vectors(
    path: str | os.PathLike[str], vocabulary: WordVocabulary, generator: torch.Generator, size: int = 300
) -> WordVectors:
    r"""The vectors of the words of a vocabulary; no others are kept, so that a file may be larger than the memory.

    The row of ``PAD`` is zero. Missing words and ``UNKNOWN`` are drawn from N(0, s^2), s^2 being the mean square of
    all numbers found: they have the length of a known word and no direction.

    Args:
        path: the text file, UTF-8, not compressed.
        vocabulary: V - 2 words.
        generator: on the CPU.
        size: D, the numbers of a word.

    Raises:
        DataError: the file is missing, has none of the words, or has a line that is not a word and D numbers; says
            which. The numbers of words that are not asked for are counted, not read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "tiny.txt").write_text("red 1 0\nblue 0 -1\n")
        ...     tiny = read_vectors(f"{folder}/tiny.txt", WordVocabulary(("blue",)), torch.Generator(), size=2)
        >>> tiny.vectors[2], tiny.missing
        (tensor([ 0., -1.]), ())
    """
    path, found = Path(path), dict[int, list[float]]()
    for number, (word, numbers) in enumerate(_lines(path, size), 1):
        row = vocabulary.index.get(word)
        if row is not None and row not in found:
            found[row] = _floats(numbers, f"{path}: line {number}, the word {word!r},")
    if not found:
        raise DataError(
            f"{path} has none of the {len(vocabulary.words)} words with {size} numbers: expected GloVe vectors of "
            "their language; is size right?"
        )
    known = torch.tensor(list(found.values()), dtype=torch.float32)
    vectors = torch.randn(len(vocabulary), size, generator=generator) * known.square().mean().sqrt()
    vectors[PAD] = 0
    vectors[list(found)] = known
    return WordVectors(vectors, tuple(word for word, row in vocabulary.index.items() if row not in found))


def _lines(path: Path, size: int) -> Iterator[tuple[str, list[str]]]:
    """The word and the numbers of every line; words may contain spaces, as a few of Common Crawl's do."""
    if not path.is_file():
        raise DataError(f"{path} is not a file: expected GloVe vectors, unpacked")
    longest = NUMBER_BYTES * size + WORD_BYTES
    with path.open("rb") as file:
        number = 0
        while line := file.readline(longest + 1):
            number += 1
            if len(line) > longest:
                raise DataError(
                    f"{path}: line {number} has more than {longest} bytes: expected a word and {size} numbers"
                )
            try:
                word, *numbers = line.decode().rstrip("\r\n").rsplit(" ", size)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}: line {number} is not UTF-8 ({error}): expected text; is it packed?"
                ) from error
            if len(numbers) != size or not word:
                found = f"has {len(numbers)} numbers after its word" if word else "has no word"
                raise DataError(f"{path}: line {number} {found}: expected a word and {size} numbers; is size right?")
            yield word, numbers


def _floats(numbers: list[str], place: str) -> list[float]:
    try:
        values = [float(number) for number in numbers]
    except ValueError as error:
        raise DataError(f"{place} has something else than numbers ({error}): get the file again") from error
    if not all(abs(value) <= LARGEST for value in values):  # NaN is not
        raise DataError(f"{place} has a number that is not finite: get the file again")
    return values
