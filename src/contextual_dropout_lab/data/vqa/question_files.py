"""Questions and human answers of VQA v2, from the official JSON files.

==================================== ===========================================================================
``v2_OpenEnded_mscoco_*_questions``  ``{"questions": [{"question_id", "image_id", "question"}, ...]}``
``v2_mscoco_*_annotations``          ``{"annotations": [{"question_id", "image_id", "question_type",
                                     "answer_type", "multiple_choice_answer", "answers": [{"answer"}, ...]}, ...]}``
==================================== ===========================================================================
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.json_files import MalformedError, number, read_json, string
from contextual_dropout_lab.data.vqa.answers import ANSWER_TYPES, AnswerType, normalize_answer
from contextual_dropout_lab.data.vqa.vqa_locations import Directory, locate_files

__all__ = ["HUMANS", "OnBad", "Question", "Questions", "read_questions", "vqa_v2", "vqa_v2_files", "vqa_v2_subset"]

OnBad = Literal["raise", "skip"]

#: How many people answered every question.
HUMANS = 10

SPLITS = {"train": "train2014", "val": "val2014"}
SUBSET_SPLITS = ("train", "valid", "test")

File = str | os.PathLike[str]
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Question:
    """A question on an image, and what ten people answered."""

    question_id: int
    image_id: int
    text: str
    answers: tuple[str, ...]
    answer: str  #: the most frequent one
    answer_type: AnswerType
    question_type: str


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions in the order of their file.

    Attributes:
        records: the N questions.
        skipped: how many were left out, by reason; empty if none.
    """

    records: tuple[Question, ...]
    skipped: dict[str, int]

    def __len__(self) -> int:
        return len(self.records)

    def subset(self, indices: Sequence[int]) -> Questions:
        """The questions of these indices, in their order."""
        return replace(self, records=tuple(self.records[index] for index in indices))

    @property
    def texts(self) -> list[str]:
        """The N questions as they were asked."""
        return [record.text for record in self.records]

    @property
    def answers(self) -> list[tuple[str, ...]]:
        """The ten human answers to each."""
        return [record.answers for record in self.records]

    @property
    def answer_types(self) -> Tensor:
        """(N,) int64, indices of :data:`ANSWER_TYPES`."""
        return torch.tensor([ANSWER_TYPES.index(record.answer_type) for record in self.records], dtype=torch.int64)

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of all records, which identifies the data of a result."""
        digest = hashlib.sha256()
        for record in self.records:
            digest.update(repr(record).encode())
        return digest.hexdigest()


class _Log:
    """Raise at the first bad record, or count them all."""

    def __init__(self, on_bad: OnBad) -> None:
        if on_bad not in ("raise", "skip"):
            raise ValueError(f"on_bad is {on_bad!r}: expected 'raise' or 'skip'")
        self.on_bad, self.skipped = on_bad, Counter[str]()

    def bad(self, reason: str, message: str) -> None:
        if self.on_bad == "raise":
            raise DataError(f"{message}; mend it, or pass on_bad='skip' to leave such records out")
        self.skipped[reason] += 1


def read_questions(
    questions: File,
    annotations: File,
    *,
    images: Collection[int] | None = None,
    answers: Collection[str] | None = None,
    on_bad: OnBad = "raise",
) -> Questions:
    """The questions of a file with their annotations, matched by ``question_id``.

    Args:
        questions: the JSON file of the questions, plain or compressed with gzip or xz.
        annotations: that of the human answers.
        images: the ids of the images that there are features of; None does not ask.
        answers: the normalised answers that a model can give. For training only: leaving out the questions to which it
            knows none makes an evaluation too good.
        on_bad: ``"raise"`` at the first bad record, or ``"skip"`` and count: ``"malformed question"``, ``"malformed
            annotation"``, ``"repeated question"``, ``"repeated annotation"``, ``"no annotation"``, ``"no question"``,
            ``"no image"``, ``"no known answer"``.

    Raises:
        DataError: a file cannot be read; with ``on_bad="raise"`` also a bad record, with its place.
    """
    log = _Log(on_bad)
    asked = _records(questions, "question", _question, log)
    answered = _records(annotations, "annotation", _annotation, log)
    for identity in sorted(answered.keys() - asked.keys()):
        log.bad("no question", f"{annotations}: there is no question {identity} to its annotation")
    kept = []
    for identity, (image, asked_text) in asked.items():
        record = answered.get(identity)
        if record is None:
            log.bad("no annotation", f"{questions}: question {identity} has no annotation in {annotations}")
        elif record.image_id != image:
            found = f"is on image {record.image_id}: expected {image}, that of its question"
            log.bad("malformed annotation", f"{annotations}: the annotation of question {identity} {found}")
        elif images is not None and image not in images:
            log.bad("no image", f"{questions}: question {identity} is on image {image}, which has no features")
        elif answers is not None and not any(normalize_answer(answer) in answers for answer in record.answers):
            log.bad("no known answer", f"{questions}: question {identity} has no answer of the vocabulary")
        else:
            kept.append(replace(record, text=asked_text))
    return Questions(tuple(kept), dict(log.skipped))


def vqa_v2(
    split: str,
    directory: Directory | None = None,
    *,
    images: Collection[int] | None = None,
    answers: Collection[str] | None = None,
    on_bad: OnBad = "raise",
) -> Questions:
    """VQA v2 (Goyal et al. 2017) from the official files in ``vqa-v2/``: 443,757 to train, 214,354 to validate.

    Args:
        split: ``"train"`` or ``"val"``; the answers of the test part are not public.
        directory: as for :func:`~contextual_dropout_lab.data.locations`.
        images: as for :func:`read_questions`, like what follows.
        answers: as there.
        on_bad: as there.
    """
    questions, annotations = vqa_v2_files(split, directory)
    return read_questions(questions, annotations, images=images, answers=answers, on_bad=on_bad)


def vqa_v2_files(split: str, directory: Directory | None = None) -> tuple[Path, ...]:
    """The official files of the questions and of the annotations.

    Args:
        split: as for :func:`vqa_v2`.
        directory: as there.
    """
    if split not in SPLITS:
        raise DataError(f"vqa-v2 has no split {split!r}: expected one of {', '.join(SPLITS)}")
    part = SPLITS[split]
    names = (f"v2_OpenEnded_mscoco_{part}_questions.json", f"v2_mscoco_{part}_annotations.json")
    return locate_files("vqa-v2", names, directory)


def vqa_v2_subset(split: str, directory: Directory | None = None, *, on_bad: OnBad = "raise") -> Questions:
    """60,000 of the questions of VQA v2's train part, a third of each answer type, in ``vqa-v2-subset/``; no images.

    Args:
        split: ``"train"``, ``"valid"`` or ``"test"``: 48,061, 8,977 and 2,962.
        directory: as for :func:`~contextual_dropout_lab.data.locations`.
        on_bad: as for :func:`read_questions`.
    """
    if split not in SUBSET_SPLITS:
        raise DataError(f"vqa-v2-subset has no split {split!r}: expected one of {', '.join(SUBSET_SPLITS)}")
    names = (f"vqa_questions_{split}.json", f"vqa_annotations_{split}.json")
    return read_questions(*locate_files("vqa-v2-subset", names, directory), on_bad=on_bad)


def _records(path: File, kind: str, parse: Callable[[object], Record], log: _Log) -> dict[int, Record]:
    """The sound records of a file by the id of their question."""
    content = read_json(path)
    entries = content.get(f"{kind}s") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(f"{path} has no list {kind + 's'!r}: expected the official file; did the two change places?")
    found: dict[int, Record] = {}
    for place, entry in enumerate(entries):
        try:
            identity, record = number(entry, "question_id"), parse(entry)
        except MalformedError as error:
            log.bad(f"malformed {kind}", f"{path}: {kind} {place} {error}")
            continue
        if identity in found:
            log.bad(f"repeated {kind}", f"{path}: {kind} {place} has the question_id {identity} of another one")
            continue
        found[identity] = record
    return found


def _question(entry: object) -> tuple[int, str]:
    text = string(entry, "question")
    if not text.strip():
        raise MalformedError("has a blank question: expected words")
    return number(entry, "image_id"), text


def _annotation(entry: object) -> Question:
    """A question whose text is in the other file."""
    return Question(
        question_id=number(entry, "question_id"),
        image_id=number(entry, "image_id"),
        text="",
        answers=_human_answers(entry),
        answer=string(entry, "multiple_choice_answer"),
        answer_type=_answer_type(string(entry, "answer_type")),
        question_type=string(entry, "question_type"),
    )


def _human_answers(entry: object) -> tuple[str, ...]:
    answers = entry.get("answers") if isinstance(entry, dict) else None
    if not isinstance(answers, list) or len(answers) != HUMANS:
        found = f"{len(answers)} answers" if isinstance(answers, list) else "no list of answers"
        raise MalformedError(f"has {found}: expected those of {HUMANS} people")
    return tuple(string(answer, "answer") for answer in answers)


def _answer_type(name: str) -> AnswerType:
    for known in ANSWER_TYPES:
        if name == known:
            return known
    raise MalformedError(f"has answer_type = {name!r}: expected one of {', '.join(ANSWER_TYPES)}")
