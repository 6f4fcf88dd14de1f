"""The answers that a model can give."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.json_files import read_json
from contextual_dropout_lab.data.vqa.answers import normalize_answer
from contextual_dropout_lab.data.vqa.vqa_locations import Directory, locate_files

__all__ = ["AnswerVocabulary", "build_answers", "mcan_answers", "read_answers"]


@dataclass(frozen=True)
class AnswerVocabulary:
    """A answers and their indices, 0 to A - 1.

    Example:
        >>> vocabulary = AnswerVocabulary(("yes", "no"))
        >>> len(vocabulary), vocabulary.index["no"], "maybe" in vocabulary
        (2, 1, False)
    """

    answers: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.answers:
            raise DataError("there are no answers: expected at least one; is min_count too high?")
        if repeated := [answer for answer, count in Counter(self.answers).items() if count > 1]:
            raise DataError(f"the answer {repeated[0]!r} is there twice: expected every answer once")

    def __len__(self) -> int:
        return len(self.answers)

    def __contains__(self, answer: object) -> bool:
        return answer in self.index

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each answer."""
        return {answer: number for number, answer in enumerate(self.answers)}


def build_answers(answers: Iterable[str], min_count: int = 9) -> AnswerVocabulary:
    """The answers that are given often enough, normalised; the most frequent first, equally frequent ones by name.

    Args:
        answers: one for every training question, the most frequent of its ten.
        min_count: how often an answer must be given; MCAN takes 9, which makes 3,129 of VQA v2's train and val parts.

    Example:
        >>> build_answers(["Yes.", "no", "two", "yes", "2"], min_count=2).answers
        ('2', 'yes')
    """
    counts = Counter(normalize_answer(answer) for answer in answers)
    frequent = [(-count, answer) for answer, count in counts.items() if count >= min_count]
    return AnswerVocabulary(tuple(answer for _, answer in sorted(frequent)))


def read_answers(path: str | os.PathLike[str]) -> AnswerVocabulary:
    """A vocabulary from JSON: a list of answers, a map from answers to indices, or MCAN's list of that and its inverse.

    Raises:
        DataError: it is neither of them, or the indices are not 0 to A - 1, each once.
    """
    content = read_json(path)
    if isinstance(content, list) and len(content) == 2 and isinstance(content[0], dict):
        content = content[0]
    names = _in_order(content) if isinstance(content, dict) else content
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"{path} is not a vocabulary: expected a list of strings, or a map from strings to 0, 1, 2, ..., each once"
        )
    return AnswerVocabulary(tuple(names))


def mcan_answers(directory: Directory | None = None) -> AnswerVocabulary:
    """The 3,129 answers of MCAN (Yu et al. 2019), in ``vqa-v2-subset/answer_dict.json``."""
    return read_answers(*locate_files("vqa-v2-subset", ["answer_dict.json"], directory))


def _in_order(indices: dict[object, object]) -> list[object] | None:
    by_index = {index: name for name, index in indices.items() if type(index) is int}
    if sorted(by_index) != list(range(len(indices))):
        return None
    return [by_index[number] for number in range(len(indices))]
