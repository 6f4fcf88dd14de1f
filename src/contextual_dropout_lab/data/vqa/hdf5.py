"""Bottom-up features of all images in one HDF5 file; needs h5py.

============== ========================================================
``features``   (M, R, D) floating point, M images of at most R regions
``num_boxes``  (M,) whole numbers: how many of them there are, from 1
``image_ids``  (M,) whole numbers, each once
============== ========================================================
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.vqa.region_features import (
    FEATURES,
    MAX_REGIONS,
    REGIONS,
    Regions,
    pad_regions,
    require_features,
)

__all__ = ["Hdf5Features"]

#: Files that declare more images are refused.
MAX_IMAGES = 10**7

#: So are those whose parts, which are read as a whole, declare more bytes: 256 MiB.
MAX_CHUNK = 2**28


class Hdf5Features:
    """The features of a file, read when they are asked for; has the same interface as ``NpzFeatures``.

    Args:
        path: the file.
        size: D.
        regions: R of what is given, not of the file.

    Attributes:
        rows: from the id of an image to its row in the file.

    Raises:
        DataError: h5py is not installed, or the file is missing, damaged, or has another layout.
    """

    def __init__(self, path: str | os.PathLike[str], size: int = FEATURES, regions: int = REGIONS) -> None:
        self.path, self.size, self.regions = Path(path), size, regions
        with _sound(self.path), self._open() as file:
            images, most, _ = self._features(file).shape
            ids, counts = (_numbers(file, key, images, self.path) for key in ("image_ids", "num_boxes"))
        if wrong := [count for count in counts.tolist() if not 1 <= count <= most]:
            raise DataError(f"{self.path} has an image of {wrong[0]} regions: expected 1 to {most}; write it again")
        self.counts = counts
        self.rows = {image: row for row, image in enumerate(ids.tolist())}
        if len(self.rows) != images:
            raise DataError(f"{self.path} has an image twice in image_ids: expected each once; write it again")

    @property
    def image_ids(self) -> frozenset[int]:
        """The ids of the images that have features, for ``read_questions(images=...)``."""
        return frozenset(self.rows)

    def load(self, image_ids: Sequence[int]) -> Regions:
        """The regions of these images, in their order."""
        require_features(image_ids, self.rows)
        rows = [self.rows[image] for image in image_ids]
        with _sound(self.path), self._open() as file:
            features = self._features(file)
            images = [features[row, : self.counts[row]].astype(np.float32) for row in rows]
        if not all(np.isfinite(image).all() for image in images):
            raise DataError(f"{self.path} has features that are not finite: expected numbers; write it again")
        return pad_regions([torch.from_numpy(image) for image in images], self.regions)

    def _open(self) -> Any:
        try:
            h5py = importlib.import_module("h5py")
        except ImportError as error:
            raise DataError("HDF5 files are read by h5py, which is not installed: pip install h5py") from error
        try:
            return h5py.File(self.path, "r")
        except OSError as error:
            raise DataError(f"{self.path} cannot be opened ({error}): expected an HDF5 file") from error

    def _features(self, file: Any) -> Any:
        features = _dataset(file, "features", self.path)
        shape, most = features.shape, min(MAX_IMAGES, self.path.stat().st_size)  # no image takes less than a byte
        fits = len(shape) == 3 and shape[0] <= most and 1 <= shape[1] <= MAX_REGIONS and shape[2] == self.size
        if not fits or features.dtype.kind != "f":
            raise DataError(
                f"{self.path}: features is {shape} of {features.dtype}: expected (M, R, {self.size}) of floating "
                f"point, M at most {most} for a file of this length, R from 1 to {MAX_REGIONS}"
            )
        return features


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    """Turn whatever h5py raises for a damaged file into a :class:`DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} cannot be read ({error}): it is damaged, get it again") from error


def _numbers(file: Any, key: str, images: int, path: Path) -> npt.NDArray[np.int64]:
    dataset = _dataset(file, key, path)
    if dataset.shape != (images,) or dataset.dtype.kind not in "iu":
        raise DataError(f"{path}: {key} is {dataset.shape} of {dataset.dtype}: expected ({images},) of whole numbers")
    return np.asarray(dataset[:]).astype(np.int64)


def _dataset(file: Any, key: str, path: Path) -> Any:
    h5py = importlib.import_module("h5py")
    # The target of a soft or an external link is not even opened: it may be any file of this machine.
    hard = key in file and isinstance(file.get(key, getlink=True), h5py.HardLink)
    dataset = file.get(key) if hard else None
    if not isinstance(dataset, h5py.Dataset):
        raise DataError(f"{path} has no data set {key!r} of its own: expected features, num_boxes and image_ids")
    if dataset.external or dataset.is_virtual:
        raise DataError(f"{path}: {key} is kept in other files: expected all numbers in this one")
    chunk = math.prod(dataset.chunks or (1,)) * dataset.dtype.itemsize
    if chunk > MAX_CHUNK:
        raise DataError(f"{path}: {key} is stored in parts of {chunk} bytes: expected at most {MAX_CHUNK}")
    return dataset
