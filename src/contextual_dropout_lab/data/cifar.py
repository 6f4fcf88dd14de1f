"""CIFAR-10 and CIFAR-100 from their official python batches.

A batch is a pickled dictionary: ``data``, (N, 3072) uint8, the red, the green and the blue plane of 32 by 32 pixels
each, row by row; and ``labels`` or ``fine_labels``, N numbers. The names of the classes are in a pickle of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.compressed import read_whole
from contextual_dropout_lab.data.formats.pickles import read_pickle
from contextual_dropout_lab.data.formats.tar import read_tar
from contextual_dropout_lab.data.images import LabelledImages
from contextual_dropout_lab.data.sources import BatchedSource

__all__ = ["MAX_BYTES", "read_cifar"]

#: Batches of more bytes than this, decompressed, are refused: 256 MiB; the largest, CIFAR-100's train, takes about 150.
MAX_BYTES = 2**28

SHAPE = (3, 32, 32)
WIDTH = 3 * 32 * 32

Content = bytes | bytearray | memoryview


def read_cifar(source: BatchedSource, split: str, paths: Sequence[Path]) -> LabelledImages:
    """The images and labels of a split; no code in the files is run.

    Args:
        source: CIFAR-10 or CIFAR-100.
        split: ``"train"`` or ``"test"``.
        paths: the batches and the file with the names of the classes, plain or xz-compressed; or the archive alone.

    Returns:
        (N, 3, 32, 32) images in the order of the batches.

    Raises:
        DataError: a file is missing, damaged, or not what it was said to be; names it.
    """
    *batches, (meta_path, meta) = _contents(source, split, paths)
    classes = _classes(read_pickle(meta, meta_path), source.classes, meta_path)
    images, labels = zip(*(_batch(content, source, len(classes), path) for path, content in batches), strict=True)
    return LabelledImages(
        torch.from_numpy(np.concatenate(images)).reshape(-1, *SHAPE),
        torch.tensor([label for part in labels for label in part], dtype=torch.int64),
        classes,
    )


def _contents(source: BatchedSource, split: str, paths: Sequence[Path]) -> list[tuple[Path, Content]]:
    if len(paths) > 1:
        return [(path, read_whole(path, MAX_BYTES)) for path in paths]
    members = read_tar(paths[0])
    names = [f"{source.folder}/{name}" for name in source.names(split)]
    if missing := [name for name in names if name not in members]:
        raise DataError(f"{paths[0]} has no {', '.join(missing)}: expected the archive from {source.url}")
    return [(paths[0] / name, members[name]) for name in names]


def _classes(meta: dict[str, object], key: str, path: Path) -> tuple[str, ...]:
    names = meta.get(key)
    classes = tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
    if not classes or not isinstance(names, list) or len(classes) != len(names):
        raise DataError(f"{path} has no list of strings {key!r}: expected the names of the classes; get it again")
    return classes


def _batch(
    content: Content, source: BatchedSource, classes: int, path: Path
) -> tuple[npt.NDArray[np.uint8], list[int]]:
    batch = read_pickle(content, path)
    images, numbers = batch.get("data"), batch.get(source.labels)
    if not isinstance(images, np.ndarray) or images.shape[1] != WIDTH:
        raise DataError(f"{path} has no array 'data' with rows of {WIDTH} bytes: expected one; get it again")
    labels = [number for number in numbers if isinstance(number, int)] if isinstance(numbers, list) else []
    if not isinstance(numbers, list) or not len(labels) == len(numbers) == len(images):
        raise DataError(f"{path} has no list {source.labels!r} of {len(images)} numbers, one per image; get it again")
    if wrong := [label for label in labels if not 0 <= label < classes]:
        raise DataError(f"{path} has the label {wrong[0]}: expected 0 to {classes - 1}; get it again")
    return images, labels
