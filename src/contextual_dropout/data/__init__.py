"""The data sets of the experiments: MNIST, Fashion-MNIST, KMNIST and digits; noise on them, and batches of them."""

from contextual_dropout.data.batches import Batches
from contextual_dropout.data.errors import DataError
from contextual_dropout.data.idx import read_idx
from contextual_dropout.data.images import LabelledImages
from contextual_dropout.data.loading import NAMES, digits, fashion_mnist, kmnist, load, mnist
from contextual_dropout.data.locate import locate
from contextual_dropout.data.noise import gaussian_noise, noisy_copies
from contextual_dropout.data.splits import split_validation

__all__ = [
    "NAMES",
    "Batches",
    "DataError",
    "LabelledImages",
    "digits",
    "fashion_mnist",
    "gaussian_noise",
    "kmnist",
    "load",
    "locate",
    "mnist",
    "noisy_copies",
    "read_idx",
    "split_validation",
]
