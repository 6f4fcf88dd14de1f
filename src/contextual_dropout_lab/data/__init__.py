"""The data sets of the experiments, as they are published; noise on them, augmentation and batches of them."""

from contextual_dropout_lab.data.batches import Batches
from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.idx import read_idx
from contextual_dropout_lab.data.image_folder import DamagedImagesWarning, ImageFolder, read_folder
from contextual_dropout_lab.data.images import LabelledImages
from contextual_dropout_lab.data.loading import (
    NAMES,
    cifar10,
    cifar100,
    digits,
    fashion_mnist,
    kmnist,
    load,
    mnist,
    open_images,
    tiny_imagenet,
)
from contextual_dropout_lab.data.locations import locate
from contextual_dropout_lab.data.noise import gaussian_noise, noisy_copies
from contextual_dropout_lab.data.splits import split_validation

__all__ = [
    "NAMES",
    "Batches",
    "DamagedImagesWarning",
    "DataError",
    "ImageFolder",
    "LabelledImages",
    "cifar10",
    "cifar100",
    "digits",
    "fashion_mnist",
    "gaussian_noise",
    "kmnist",
    "load",
    "locate",
    "mnist",
    "noisy_copies",
    "open_images",
    "read_folder",
    "read_idx",
    "split_validation",
    "tiny_imagenet",
]
