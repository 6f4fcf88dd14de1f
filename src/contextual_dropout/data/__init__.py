"""The data sets of the experiments, as they are published; noise on them, augmentation and batches of them."""

from contextual_dropout.data.batches import Batches
from contextual_dropout.data.errors import DataError
from contextual_dropout.data.idx import read_idx
from contextual_dropout.data.image_folder import DamagedImagesWarning, ImageFolder, read_folder
from contextual_dropout.data.images import LabelledImages
from contextual_dropout.data.loading import (
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
from contextual_dropout.data.locate import locate
from contextual_dropout.data.noise import gaussian_noise, noisy_copies
from contextual_dropout.data.splits import split_validation

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
