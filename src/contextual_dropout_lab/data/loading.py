"""The data sets by name."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contextual_dropout_lab.data.cifar import read_cifar
from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.fetch import Progress
from contextual_dropout_lab.data.formats.idx import read_idx
from contextual_dropout_lab.data.image_folder import ImageFolder, check_on_error, read_folder
from contextual_dropout_lab.data.images import LabelledImages
from contextual_dropout_lab.data.locations import locate, locate_folder
from contextual_dropout_lab.data.sources import CIFAR, SOURCES, SPLITS
from contextual_dropout_lab.data.splits import split_validation

__all__ = [
    "IMAGE_FILES",
    "NAMES",
    "cifar10",
    "cifar100",
    "digits",
    "fashion_mnist",
    "kmnist",
    "load",
    "mnist",
    "open_images",
    "tiny_imagenet",
]

#: Sets of image files, and the side to which their images are scaled.
IMAGE_FILES = {"tiny-imagenet-20": 64, "tiny-imagenet-200": 64, "imagenet": 256}
#: The data sets of :func:`load`.
NAMES = (*SOURCES, *CIFAR, *IMAGE_FILES, "digits")

#: Of scikit-learn's 1,797 digits, 450 are the test split; split_validation with this seed selects them.
DIGITS_TEST, DIGITS_SEED = 450, 0
#: In the folder of scikit-learn.
DIGITS_FILE = "datasets/data/digits.csv.gz"

Directory = str | os.PathLike[str]


def load(
    name: str,
    split: str,
    directory: Directory | None = None,
    progress: Progress | None = None,
    on_error: str = "raise",
) -> LabelledImages:
    """A data set by name, from where :mod:`contextual_dropout_lab.data.locations` finds it.

    Args:
        name: one of :data:`NAMES`: MNIST and its like, CIFAR, Tiny ImageNet (which is not fetched), digits; ImageNet
            as far as it fits into memory, else see :func:`open_images`.
        split: ``"train"`` or ``"test"``.
        directory: the only folder to look for the files in; by default the environment variable
            ``CONTEXTUAL_DROPOUT_DATA``, the cache and the official mirror.
        progress: is called with (file name, bytes, bytes in all) during a download.
        on_error: of sets of image files, ``"raise"`` a DataError for a damaged one, or ``"skip"`` those with a
            :class:`~contextual_dropout_lab.data.DamagedImagesWarning`.

    Returns:
        The images and their labels.

    Raises:
        DataError: unknown name or split, files that are nowhere or damaged, or files of another set.

    Example:
        >>> load("digits", "test").images.shape
        torch.Size([450, 8, 8])
    """
    if name not in NAMES:
        raise DataError(f"there is no data set {name!r}: expected one of {', '.join(NAMES)}")
    if name == "digits":
        return digits(split)
    if name in IMAGE_FILES:
        part = _part(name, split)
        return read_folder(locate_folder(name, directory), part, IMAGE_FILES[name], on_error)
    paths = locate(name, split, directory, progress)
    if name in CIFAR:
        return read_cifar(CIFAR[name], split, paths)
    images, labels = (read_idx(path) for path in paths)
    try:
        data = LabelledImages(images, _int64(labels), SOURCES[name].classes)
        _not_another(data, name, split)
    except DataError as error:
        raise DataError(f"{paths[0]} and {paths[1].name} do not hold {name}, {split}: {error}") from error
    return data


def mnist(split: str, directory: Directory | None = None) -> LabelledImages:
    """Handwritten digits (LeCun, Cortes and Burges 1998): 60,000 to train, 10,000 to test, 28 by 28 pixels."""
    return load("mnist", split, directory)


def fashion_mnist(split: str, directory: Directory | None = None) -> LabelledImages:
    """Articles of clothing (Xiao, Rasul and Vollgraf 2017), in the sizes of MNIST."""
    return load("fashion-mnist", split, directory)


def kmnist(split: str, directory: Directory | None = None) -> LabelledImages:
    """Cursive Japanese characters (Clanuwat et al. 2018), in the sizes of MNIST; licence CC BY-SA 4.0."""
    return load("kmnist", split, directory)


def cifar10(split: str, directory: Directory | None = None) -> LabelledImages:
    """Photographs of 10 things (Krizhevsky 2009): 50,000 to train, 10,000 to test, 32 by 32 pixels in colour."""
    return load("cifar10", split, directory)


def cifar100(split: str, directory: Directory | None = None) -> LabelledImages:
    """Photographs of 100 things, in the sizes of CIFAR-10; the labels are the fine ones."""
    return load("cifar100", split, directory)


def tiny_imagenet(split: str, directory: Directory | None = None, name: str = "tiny-imagenet-20") -> LabelledImages:
    """Colour photographs of 64 by 64 pixels, cut from ImageNet (Stanford CS231N 2015); its validation part tests."""
    return load(name, split, directory)


def open_images(name: str, split: str, directory: Directory | None = None, on_error: str = "raise") -> ImageFolder:
    """A set of image files, which are read when they are asked for: ImageNet (Deng et al. 2009) in its usual folders.

    Args:
        name: ``"imagenet"``, or one of Tiny ImageNet.
        split: ``"train"`` or ``"test"``, which is the set's validation part.
        directory: as for :func:`load`.
        on_error: ``"raise"`` a DataError when a damaged image is asked for, or ``"skip"`` those with a
            :class:`~contextual_dropout_lab.data.DamagedImagesWarning`: then all images are decoded once to find them.
    """
    check_on_error(on_error)
    part = _part(name, split)
    folder = ImageFolder(locate_folder(name, directory), part, IMAGE_FILES[name])
    return folder.sound(os.cpu_count() or 1) if on_error == "skip" else folder


def _part(name: str, split: str) -> str:
    if split not in SPLITS:
        raise DataError(f"{name} has no split {split!r}: expected one of {', '.join(SPLITS)}")
    return "train" if split == "train" else "val"


def digits(split: str) -> LabelledImages:
    """The 8 by 8 digits that scikit-learn carries: 1,347 to train, 450 to test, stratified (seed 0).

    Their 17 grey levels 0..16 are spread over 0..255.

    Example:
        >>> len(digits("train")), digits("train").classes[:3]
        (1347, ('0', '1', '2'))
    """
    if split not in SPLITS:
        raise DataError(f"digits has no split {split!r}: expected one of {', '.join(SPLITS)}")
    rows = torch.from_numpy(_rows_of_digits())
    images = rows[:, :-1].reshape(-1, 8, 8).mul(255 / 16).round().to(torch.uint8)
    everything = LabelledImages(images, rows[:, -1].long(), tuple("0123456789"))
    train, test = split_validation(everything, DIGITS_TEST, DIGITS_SEED)
    return train if split == "train" else test


def _rows_of_digits() -> np.ndarray[Any, Any]:
    """(1797, 65): 64 pixels from 0 to 16 and the digit.

    From the file that scikit-learn's ``load_digits`` reads, where it is in its place: importing scikit-learn takes
    longer than a small network takes to train.
    """
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError("digits are part of scikit-learn, which is not installed: pip install scikit-learn")
    path = Path(spec.origin).parent / DIGITS_FILE
    if path.exists():
        return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])


def _int64(labels: Tensor) -> Tensor:
    if labels.is_floating_point():
        raise DataError(f"the labels are of {labels.dtype}: expected an integer type")
    return labels.long()


def _not_another(data: LabelledImages, name: str, split: str) -> None:
    # The files of all sets have the same names: those of another set must not pass for this one.
    for other, source in SOURCES.items():
        for part, sha256 in source.contents.items():
            if data.sha256 == sha256 and (other, part) != (name, split):
                raise DataError(
                    f"they are the {part} split of {other}; put the files of every data set into a sub-folder of its "
                    f"name, {name}/ for this one"
                )
