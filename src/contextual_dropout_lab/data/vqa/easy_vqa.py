"""easy-VQA: questions on one coloured shape, a folder or an archive with images, questions and answers.

========================= =====================================
``answers.txt``           an answer a line
``<split>/images/*.png``  named by their ids
``<split>/questions.json`` a list of [question, answer, image id]
========================= =====================================
"""

from __future__ import annotations

import torch

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.json_files import parse_json
from contextual_dropout_lab.data.image_files import Files
from contextual_dropout_lab.data.locations import locate_folder
from contextual_dropout_lab.data.vqa.visual import VisualQuestions, decode_whole, stack_images
from contextual_dropout_lab.data.vqa.vqa_locations import Directory

__all__ = ["easy_vqa"]

SPLITS = ("train", "test")


def easy_vqa(split: str, directory: Directory | None = None) -> VisualQuestions:
    """easy-VQA (Zhou 2019): 4,000 and 1,000 images of 64 by 64 pixels, 38,575 and 9,673 questions, 13 answers.

    Args:
        split: ``"train"`` or ``"test"``.
        directory: as for :func:`~contextual_dropout_lab.data.locations`; the set is not fetched.

    Raises:
        DataError: the set is nowhere, or a part of it is missing or damaged.
    """
    if split not in SPLITS:
        raise DataError(f"easy-vqa has no split {split!r}: expected one of {', '.join(SPLITS)}")
    files = Files(locate_folder("easy-vqa", directory))
    names = [name for name in files.names(split) if name.startswith(f"{split}/images/") and name.endswith(".png")]
    rows = {name.rpartition("/")[2].removesuffix(".png"): row for row, name in enumerate(names)}
    images = stack_images((decode_whole(files.read(name), f"{files.root}: {name}") for name in names), names)
    asked = _questions(files, f"{split}/questions.json", rows)
    return VisualQuestions(
        images,
        torch.tensor([row for _, _, row in asked], dtype=torch.int64),
        tuple(question for question, _, _ in asked),
        tuple((answer,) for _, answer, _ in asked),
    )


def _questions(files: Files, name: str, rows: dict[str, int]) -> list[tuple[str, str, int]]:
    entries = parse_json(_read(files, name), f"{files.root}: {name}")
    known = set(bytes(_read(files, "answers.txt")).decode("utf-8", "replace").split())
    if not isinstance(entries, list):
        raise DataError(f"{files.root}: {name} is not a list: expected one of [question, answer, image id]")
    asked = []
    for place, entry in enumerate(entries):
        match entry:
            case [str(question), str(answer), int(image)] if answer in known and str(image) in rows:
                asked.append((question, answer, rows[str(image)]))
            case _:
                raise DataError(
                    f"{files.root}: entry {place} of {name} is {str(entry)[:80]}: expected a question, an answer of "
                    "answers.txt and the id of an image"
                )
    return asked


def _read(files: Files, name: str) -> bytes | memoryview:
    try:
        return files.read(name)
    except KeyError as error:
        raise DataError(f"{files.root} has no {name}: expected the archive of easy-VQA; pack it again") from error
