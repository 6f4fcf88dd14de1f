"""SHAPES: yes-no questions on nine small shapes, an archive ``shapes_dataset.tar``, which may be compressed.

====================== ====================================================
``<split>.input.npy``  (N, 30, 30, 3) uint8, blue, green and red
``<split>.query_str.txt``  a question a line
``<split>.output``     true or false, a line each
====================== ====================================================
"""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.npy import read_header, read_items
from contextual_dropout_lab.data.formats.tar import read_tar
from contextual_dropout_lab.data.vqa.visual import VisualQuestions
from contextual_dropout_lab.data.vqa.vqa_locations import Directory, locate_files

__all__ = ["shapes"]

SPLITS = {"train": "train.small", "val": "val", "test": "test"}
ANSWERS = {"true": "yes", "false": "no"}


def shapes(split: str, directory: Directory | None = None) -> VisualQuestions:
    """SHAPES (Andreas et al. 2016): 640, 1,024 and 1,024 questions, each on an image of 30 by 30 pixels of its own.

    Args:
        split: ``"train"`` (the part train.small), ``"val"`` or ``"test"``.
        directory: as for :func:`~contextual_dropout_lab.data.locations`; the set is not fetched.

    Raises:
        DataError: the set is nowhere, or a part of it is missing or damaged.
    """
    if split not in SPLITS:
        raise DataError(f"shapes has no split {split!r}: expected one of {', '.join(SPLITS)}")
    (path,) = locate_files("shapes", ["shapes_dataset.tar"], directory)
    names = [f"shapes_dataset/{SPLITS[split]}.{end}" for end in ("input.npy", "query_str.txt", "output")]
    members = read_tar(path)
    if missing := [name for name in names if name not in members]:
        raise DataError(f"{path} has no {missing[0]}: expected the archive of SHAPES; get it again")
    images = _images(members[names[0]], f"{path}: {names[0]}")
    questions, outputs = (bytes(members[name]).decode("utf-8", "replace").splitlines() for name in names[1:])
    if wrong := [output for output in outputs if output not in ANSWERS]:
        raise DataError(f"{path}: {names[2]} has the line {wrong[0][:60]!r}: expected true or false; get it again")
    answers = tuple((ANSWERS[output],) for output in outputs)
    return VisualQuestions(images, torch.arange(len(images)), tuple(questions), answers)


def _images(content: memoryview, name: str) -> Tensor:
    stream = io.BytesIO(content)
    header = read_header(stream, name)
    if len(header.shape) != 4 or header.shape[3] != 3 or header.dtype != np.uint8:
        raise DataError(f"{name} is {header.shape} of {header.dtype}: expected (N, H, W, 3) of uint8")
    pixels = read_items(stream, header, name)[..., ::-1]  # questions on red are right with the last channel as red
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
