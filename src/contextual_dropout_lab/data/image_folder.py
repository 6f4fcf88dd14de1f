"""Image files in folders, one folder a class: the layouts of ImageNet and of Tiny ImageNet, unpacked or in a tar.

=============  ==========================================================================================
ImageNet       ``train/<class>/*.JPEG`` and ``val/<class>/*.JPEG``
Tiny ImageNet  ``train/<class>/images/*.JPEG``, ``val/images/*.JPEG`` and ``val/val_annotations.txt``, with
               the name of a file and its class in every line
=============  ==========================================================================================

Classes are the names of the folders below ``train/``, sorted; images come class by class, sorted by name. Neither
depends on the file system, on the order of an archive or on the number of workers.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from torch.utils.data import Dataset

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.jpeg_png import SUFFIXES, decode
from contextual_dropout_lab.data.image_files import Files
from contextual_dropout_lab.data.images import LabelledImages

__all__ = ["DamagedImagesWarning", "ImageFolder", "check_on_error", "read_folder"]

SPLITS = ("train", "val")
ANNOTATIONS = "val/val_annotations.txt"

#: :func:`read_folder` refuses images that take more memory than this: 8 GiB.
MAX_MEMORY = 2**33


class DamagedImagesWarning(UserWarning):
    """The warning that images were left out: how many, which, and why."""


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """Images that are read when they are asked for, for sets that do not fit into memory.

    Give it to a ``torch.utils.data.DataLoader``, with ``num_workers`` processes. An image that cannot be decoded is a
    DataError that names it; find all of them beforehand by :meth:`damaged`, and leave them out by :meth:`without`.

    Args:
        root: the folder, or a tar archive of it, plain or compressed with gzip or xz; nothing of it is extracted.
        split: ``"train"`` or ``"val"``.
        size: images are scaled to cover a square of this side, and cut to it.

    Attributes:
        classes: the names of the classes.
        names: of the files, in their order.
        labels: (N,) int64.

    Example:
        >>> import pathlib, tempfile
        >>> from PIL import Image
        >>> root = tempfile.TemporaryDirectory()
        >>> for name in ("cat", "dog"):
        ...     (path := pathlib.Path(root.name, "train", name)).mkdir(parents=True)
        ...     Image.new("RGB", (20, 30)).save(path / "1.JPEG")
        >>> data = ImageFolder(root.name, "train", size=8)
        >>> data.classes, data.names, data[1][0].shape, data[1][1]
        (('cat', 'dog'), ['train/cat/1.JPEG', 'train/dog/1.JPEG'], torch.Size([3, 8, 8]), 1)
        >>> root.cleanup()
    """

    def __init__(self, root: str | os.PathLike[str], split: str, size: int) -> None:
        if split not in SPLITS:
            raise DataError(f"there is no split {split!r}: expected one of {', '.join(SPLITS)}")
        if size < 1:
            raise ValueError(f"size is {size}: expected at least 1")
        self.files, self.split, self.size = Files(root), split, size
        labelled = _labelled(self.files, split)
        train = labelled if split == "train" else _in_folders(self.files.names("train"))
        known = {label for _, label in train or labelled}
        for part in {"train", split}:
            _require_images(self.files, part)
        self.classes = tuple(sorted(known))
        index = {name: number for number, name in enumerate(self.classes)}
        if foreign := sorted({label for _, label in labelled} - known):
            raise DataError(f"{self.files.root} has no class {foreign[0]} in train/, but in {split}/")
        self.names = [name for name, _ in labelled]
        self.labels = torch.tensor([index[label] for _, label in labelled], dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """(3, size, size) uint8 and the label."""
        name = self.names[index]
        return decode(self.files.read(name), self.size, f"{self.files.root}: {name}"), int(self.labels[index])

    def without(self, names: Collection[str]) -> ImageFolder:
        """The same images but those of these names."""
        other = object.__new__(ImageFolder)
        other.__dict__.update(self.__dict__)
        left_out = set(names)
        kept = [number for number, name in enumerate(self.names) if name not in left_out]
        other.names, other.labels = [self.names[number] for number in kept], self.labels[kept]
        return other

    def damaged(self, workers: int = 0) -> dict[str, DataError]:
        """Decode all images, in as many threads, and return what is wrong with which."""
        return {name: error for name, (_, error) in zip(self.names, _decoded(self, workers), strict=True) if error}

    def sound(self, workers: int = 0) -> ImageFolder:
        """The same without damaged images, of which a :class:`DamagedImagesWarning` tells; all are decoded once."""
        wrong = self.damaged(workers)
        if wrong:
            _warn(self, list(wrong.values()))
        return self.without(wrong)

    @property
    def sha256(self) -> str:
        """The SHA-256 of names, lengths and labels of the files; their contents may be too large to read for it."""
        digest = hashlib.sha256()
        for name, label in zip(self.names, self.labels.tolist(), strict=True):
            digest.update(f"{name}\0{self.files.length(name)}\0{label}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def read_folder(
    root: str | os.PathLike[str], split: str, size: int, on_error: str = "raise", workers: int = 0
) -> LabelledImages:
    """All images of a split, in memory.

    Args:
        root: as for :class:`ImageFolder`.
        split: ``"train"`` or ``"val"``.
        size: the side of the images.
        on_error: ``"raise"`` a DataError for the first image that cannot be decoded, or ``"skip"`` all of those with
            a :class:`DamagedImagesWarning`.
        workers: threads that decode; 0 for none. The result is the same.

    Returns:
        (N, 3, size, size) images with their labels.
    """
    check_on_error(on_error)
    folder = ImageFolder(root, split, size)
    if (bytes_ := 3 * size * size * len(folder)) > MAX_MEMORY:
        raise DataError(f"{len(folder)} images take {bytes_} bytes: expected at most {MAX_MEMORY}; use ImageFolder")
    images, wrong = torch.empty(len(folder), 3, size, size, dtype=torch.uint8), dict[int, DataError]()
    for number, (image, error) in enumerate(_decoded(folder, workers)):
        if image is not None:
            images[number] = image
        elif error is not None and on_error == "raise":
            raise error
        elif error is not None:
            wrong[number] = error
    if not wrong:
        return LabelledImages(images, folder.labels, folder.classes)
    _warn(folder, list(wrong.values()))
    kept = [number for number in range(len(folder)) if number not in wrong]
    return LabelledImages(images[kept], folder.labels[kept], folder.classes)


def check_on_error(on_error: str) -> None:
    """Refuse another way to treat damaged images than the two that there are."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is {on_error!r}: expected 'raise' or 'skip'")


def _warn(folder: ImageFolder, errors: list[DataError]) -> None:
    reasons = "".join(f"\n  - {error}" for error in errors)
    warnings.warn(f"{len(errors)} of {len(folder)} images were left out:{reasons}", DamagedImagesWarning, stacklevel=3)


def _decoded(folder: ImageFolder, workers: int) -> Iterator[tuple[Tensor | None, DataError | None]]:
    """Every image, or else what is wrong with it, in their order; no more than a few are decoded ahead."""

    def one(number: int) -> tuple[Tensor | None, DataError | None]:
        try:
            return folder[number][0], None
        except DataError as error:
            return None, error

    if workers < 1:
        yield from map(one, range(len(folder)))
        return
    ahead = 64 * workers
    with ThreadPoolExecutor(workers) as pool:  # Pillow decodes outside Python's lock
        for start in range(0, len(folder), ahead):
            yield from pool.map(one, range(start, min(start + ahead, len(folder))))


def _labelled(files: Files, split: str) -> list[tuple[str, str]]:
    """The images of a split with their classes, sorted by class, then by name."""
    names = files.names(split)
    found = _annotated(files, names) if ANNOTATIONS in names else _in_folders(names)
    if not found:
        raise DataError(
            f"{files.root} has no images of the split {split}: expected {split}/<class>/*.JPEG, "
            f"{split}/<class>/images/*.JPEG, or val/images/*.JPEG with {ANNOTATIONS}"
        )
    return sorted(found, key=lambda pair: (pair[1], pair[0]))


def _require_images(files: Files, split: str) -> None:
    """Raise a DataError for class folders without images: without one of them, all later classes would move up."""
    names = files.names(split)
    if ANNOTATIONS in names:
        return
    if empty := sorted(files.folders(split) - {label for _, label in _in_folders(names)}):
        raise DataError(
            f"{files.root}: the class folder {split}/{empty[0]} has no images ({len(empty)} such folders in {split}/): "
            f"expected files that end in {', '.join(SUFFIXES)}; put the images there, or remove the folder"
        )


def _in_folders(names: list[str]) -> list[tuple[str, str]]:
    return [(name, parts[1]) for name in names if (parts := _image(name)) is not None]


def _image(name: str) -> list[str] | None:
    parts = name.split("/")
    in_class = len(parts) == 3 or (len(parts) == 4 and parts[2] == "images")
    return parts if in_class and name.lower().endswith(SUFFIXES) and not parts[-1].startswith(".") else None


def _annotated(files: Files, names: list[str]) -> list[tuple[str, str]]:
    # A name is only looked up among those that are there: it cannot lead anywhere else.
    images = {name for name in names if name.startswith("val/images/") and _image(name)}
    found: dict[str, str] = {}
    for number, line in enumerate(os.fsdecode(bytes(files.read(ANNOTATIONS))).rstrip().split("\n"), 1):
        file, _, rest = line.partition("\t")
        if f"val/images/{file}" not in images or not rest:
            raise DataError(
                f"{files.root}: line {number} of {ANNOTATIONS} is {line[:80]!r}: expected the name of a file in "
                "val/images/, a tab and its class"
            )
        found[f"val/images/{file}"] = rest.partition("\t")[0].rstrip("\r")
    if missing := sorted(images - found.keys()):
        raise DataError(f"{files.root}: {missing[0]} and {len(missing) - 1} others have no line in {ANNOTATIONS}")
    return list(found.items())
