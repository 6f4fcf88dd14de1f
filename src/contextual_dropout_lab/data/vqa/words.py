"""Questions as rows of word numbers, as MCAN has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor

__all__ = ["LENGTH", "PAD", "UNKNOWN", "WordVocabulary", "build_words", "tokenize"]

#: Words of a question that count; what follows them is cut off.
LENGTH = 14

#: The numbers of "no word" and of all words that are not known.
PAD, UNKNOWN = 0, 1

#: Characters that are left out of a question, and those that separate words.
REMOVED, PARTING = ".,'!?\"()*#:;", "-/"
MARKS = str.maketrans(PARTING, " " * len(PARTING), REMOVED)


def tokenize(question: str) -> list[str]:
    """The words of a question in lower case.

    Example:
        >>> tokenize("What's on the T-shirt?")
        ['whats', 'on', 'the', 't', 'shirt']
    """
    return question.lower().translate(MARKS).split()


@dataclass(frozen=True)
class WordVocabulary:
    """The words that have numbers of their own, from 2 on.

    Attributes:
        words: without "no word" and "unknown".

    Example:
        >>> vocabulary = build_words(["Is it red?"])
        >>> vocabulary.encode(["Is it blue?", "Red"], length=4)
        tensor([[2, 3, 1, 0], [4, 0, 0, 0]])
    """

    words: tuple[str, ...]

    def __len__(self) -> int:
        return 2 + len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words, 2)}

    def encode(self, questions: Sequence[str], length: int = LENGTH) -> Tensor:
        """(N, length) int64: the numbers of the first words, then :data:`PAD`.

        A question without words has one, :data:`UNKNOWN`: attention over nothing would be NaN.
        """
        if length < 1:
            raise ValueError(f"length is {length}: expected at least 1")
        encoded = torch.full((len(questions), length), PAD)
        for row, question in zip(encoded, questions, strict=True):
            numbers = [self.index.get(word, UNKNOWN) for word in tokenize(question)[:length]] or [UNKNOWN]
            row[: len(numbers)] = torch.tensor(numbers)
        return encoded


def build_words(questions: Iterable[str]) -> WordVocabulary:
    """All words of the training questions, in the order of their first use."""
    return WordVocabulary(tuple(dict.fromkeys(chain.from_iterable(map(tokenize, questions)))))
