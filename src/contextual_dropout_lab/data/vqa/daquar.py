"""DAQUAR: questions on photographs of rooms.

========================= ===============================================================================
``all_qa_pairs.txt``      a line with a question, which names its image, then one with its answers, apart by ", "
``*_images_list.txt``     the images of the train and of the test split, a name a line
``images_160x121.tar``    ``images/<name>.jpg``: the photographs, made smaller; may be compressed
========================= ===============================================================================
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.compressed import read_whole
from contextual_dropout_lab.data.formats.tar import read_tar
from contextual_dropout_lab.data.vqa.visual import VisualQuestions, decode_whole, stack_images
from contextual_dropout_lab.data.vqa.vqa_locations import Directory, locate_files

__all__ = ["daquar"]

SPLITS = ("train", "test")

#: Text files of more bytes are refused: 16 MiB; the questions take 0.8.
MAX_TEXT = 2**24

IMAGE = re.compile(r"\bimage(\d+)\b")


def daquar(split: str, directory: Directory | None = None) -> VisualQuestions:
    """DAQUAR (Malinowski and Fritz 2014): 795 and 654 images of 121 by 160 pixels, 6,795 and 5,673 questions.

    The number of its image is taken out of a question: it would tell the images apart without looking.

    Args:
        split: ``"train"`` or ``"test"``.
        directory: as for :func:`~contextual_dropout_lab.data.locations`; the set is not fetched.

    Raises:
        DataError: the set is nowhere, or a part of it is missing or damaged.
    """
    if split not in SPLITS:
        raise DataError(f"daquar has no split {split!r}: expected one of {', '.join(SPLITS)}")
    files = ("all_qa_pairs.txt", f"{split}_images_list.txt", "images_160x121.tar")
    pairs, listed, archive = locate_files("daquar", files, directory)
    names = _lines(listed)
    row = {name: number for number, name in enumerate(names)}
    asked = [pair for pair in _pairs(pairs) if pair[0] in row]
    members = read_tar(archive)
    if missing := [name for name in names if f"images/{name}.jpg" not in members]:
        raise DataError(
            f"{archive} has no images/{missing[0]}.jpg, of {listed.name}: expected all of them; get it again"
        )
    images = (decode_whole(members[f"images/{name}.jpg"], f"{archive}: {name}") for name in names)
    return VisualQuestions(
        stack_images(images, names),
        torch.tensor([row[name] for name, _, _ in asked], dtype=torch.int64),
        tuple(question for _, question, _ in asked),
        tuple(answers for _, _, answers in asked),
    )


def _pairs(path: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    """The image, the question and the answers of every pair."""
    lines = _lines(path)
    if len(lines) % 2:
        raise DataError(f"{path} has {len(lines)} lines: expected an even number, a question and its answers in turn")
    pairs = []
    for place in range(0, len(lines), 2):
        question, answers = lines[place], tuple(answer.strip() for answer in lines[place + 1].split(","))
        images = set(IMAGE.findall(question))
        if len(images) != 1 or not all(answers):
            raise DataError(
                f"{path}: lines {place + 1} and {place + 2} are {question[:60]!r} and {lines[place + 1][:60]!r}: "
                "expected a question with the name of one image, and answers"
            )
        pairs.append((f"image{images.pop()}", IMAGE.sub("image", question), answers))
    return pairs


def _lines(path: Path) -> list[str]:
    try:
        return read_whole(path, MAX_TEXT).decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}): expected text; get it again") from error
