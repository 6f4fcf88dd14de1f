"""Bottom-up features: D numbers for each of a few regions of an image, one npz file an image.

============================ ==========================================================================
``x``                        (D, n) as MCAN has published them, or (n, D): floating point
``num_bbox``                 n, if it is there
``bbox``                     (n, 4), if it is there; checked, not used, as MCAN does not
``image_h``, ``image_w``     not read
============================ ==========================================================================

The name of a file ends in the id of its image: ``COCO_train2014_000000000009.jpg.npz``.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.npy import Header, read_header, read_items
from contextual_dropout_lab.data.image_files import MAX_FILE
from contextual_dropout_lab.data.noise import gaussian_noise
from contextual_dropout_lab.data.vqa.vqa_locations import Directory

__all__ = ["FEATURES", "REGIONS", "NpzFeatures", "Regions", "pad_regions", "read_regions", "require_features"]

#: D of bottom-up attention, and how many regions of an image MCAN takes.
FEATURES, REGIONS = 2048, 100

#: Images that declare more regions than this are refused.
MAX_REGIONS = 1000

NAME = re.compile(r"(\d+)(?:\.jpe?g|\.png)?\.npz")


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of B images, filled up to R with zeros.

    Attributes:
        features: (B, R, D) float32.
        padding: (B, R) bool, True where there is no region: the ``key_padding_mask`` of torch's attention.
    """

    features: Tensor
    padding: Tensor

    def noisy(self, sd: float, generator: torch.Generator) -> Regions:
        """The same with :func:`~contextual_dropout_lab.data.gaussian_noise` on regions, not on padding; paper: 5."""
        noisy = gaussian_noise(self.features, sd, generator)
        return Regions(noisy.masked_fill_(self.padding[..., None], 0.0), self.padding)


def pad_regions(images: Sequence[Tensor], regions: int = REGIONS) -> Regions:
    """Images of (n, D) each, of as many n, in one tensor; of more than ``regions`` the first ones.

    Example:
        >>> pad_regions([torch.ones(1, 2), torch.ones(3, 2)], regions=2).padding
        tensor([[False,  True], [False, False]])
    """
    features = images[0].new_zeros(len(images), regions, images[0].shape[1])
    padding = torch.ones(len(images), regions, dtype=torch.bool)
    for row, image in enumerate(images):
        taken = image[:regions]
        features[row, : len(taken)] = taken
        padding[row, : len(taken)] = False
    return Regions(features, padding)


def read_regions(path: str | os.PathLike[str], size: int = FEATURES) -> Tensor:
    """The features of one image; no code in the file is run, and every shape is checked before it is used.

    Args:
        path: the npz file.
        size: D; the side of ``x`` that is as long has the features, if both are the first.

    Returns:
        (n, D) float32.

    Raises:
        DataError: the file is missing, damaged, truncated, holds Python objects, or no such features.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is not a file: expected the npz file of an image")
    if (length := path.stat().st_size) > MAX_FILE:
        raise DataError(f"{path} is {length} bytes long: expected at most {MAX_FILE}")
    try:
        with zipfile.ZipFile(path) as archive:
            return _regions(archive, path, size)
    except DataError:
        raise
    except Exception as error:  # zipfile raises whatever comes: struct.error, zlib.error, EOFError, ...
        raise DataError(f"{path} is not a sound npz file ({error}): expected one; get it again") from error


def require_features(image_ids: Sequence[int], known: Container[int]) -> None:
    """Raise a DataError that names an image without features."""
    if missing := [image for image in image_ids if image not in known]:
        raise DataError(
            f"image {missing[0]} and {len(missing) - 1} others have no features: expected only those of image_ids; "
            "pass them to read_questions as images"
        )


class NpzFeatures:
    """A folder of npz files, read when they are asked for.

    Args:
        folder: of the files; those below it are not looked at.
        size: D.
        regions: R.

    Attributes:
        paths: from the id of an image to its file.
    """

    def __init__(self, folder: Directory, size: int = FEATURES, regions: int = REGIONS) -> None:
        self.size, self.regions = size, regions
        self.paths: dict[int, Path] = {}
        for path in sorted(Path(folder).expanduser().glob("*.npz")):
            name = NAME.search(path.name)
            if name is None:
                raise DataError(f"{path} has no image id at its end: expected a name like 000000000009.jpg.npz")
            if int(name[1]) in self.paths:
                raise DataError(f"{path} and {self.paths[int(name[1])].name} are of the same image: expected one file")
            self.paths[int(name[1])] = path
        if not self.paths:
            raise DataError(f"{folder} has no npz files: expected one for every image; unpack the archives of features")

    @property
    def image_ids(self) -> frozenset[int]:
        """The ids of the images that have features, for ``read_questions(images=...)``."""
        return frozenset(self.paths)

    def load(self, image_ids: Sequence[int]) -> Regions:
        """The regions of these images, in their order."""
        require_features(image_ids, self.paths)
        return pad_regions([read_regions(self.paths[image], self.size) for image in image_ids], self.regions)


def _regions(archive: zipfile.ZipFile, path: Path, size: int) -> Tensor:
    expected = f"({size}, n) or (n, {size}) of floating point, n from 1 to {MAX_REGIONS}"
    stored = _array(archive, "x", path, expected, lambda header: _is_features(header, size))
    with np.errstate(over="ignore"):
        x = (stored.T if stored.shape[0] == size else stored).astype(np.float32)  # (n, D)
    if not np.isfinite(x).all():
        raise DataError(f"{path} has features that are not finite: expected numbers; get it again")
    names = archive.namelist()
    if "num_bbox.npy" in names:
        count = _array(archive, "num_bbox", path, "one number", lambda header: header.shape in ((), (1,)))
        if count.item() != len(x):
            raise DataError(f"{path} has {len(x)} regions in x: expected {count.item()}, its num_bbox; get it again")
    if "bbox.npy" in names:
        _array(archive, "bbox", path, f"({len(x)}, 4)", lambda header: header.shape == (len(x), 4))
    return torch.from_numpy(x)


def _is_features(header: Header, size: int) -> bool:
    floating, sides = header.dtype.kind == "f", len(header.shape) == 2
    return (
        floating
        and sides
        and size in header.shape
        and 1 <= header.nbytes // header.dtype.itemsize // size <= MAX_REGIONS
    )


def _array(
    archive: zipfile.ZipFile, key: str, path: Path, expected: str, accepts: Callable[[Header], bool]
) -> npt.NDArray[np.generic]:
    name = f"{path}: {key}"
    if f"{key}.npy" not in archive.namelist():
        raise DataError(f"{path} has no array {key!r}: expected one; does it hold bottom-up features?")
    # Other methods take memory for what the file asks them to before the first byte comes.
    if (method := archive.getinfo(f"{key}.npy").compress_type) not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{name} is compressed by method {method}: expected what numpy writes, 0 or 8; save it again")
    with archive.open(f"{key}.npy") as stream:
        header = read_header(stream, name)
        if not accepts(header):
            raise DataError(f"{name} is {header.shape} of {header.dtype}: expected {expected}")
        return read_items(stream, header, name)
