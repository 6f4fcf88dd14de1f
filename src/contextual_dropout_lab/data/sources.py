"""The files that make up a data set, where they are published, and their checksums."""

from __future__ import annotations

from dataclasses import dataclass

from contextual_dropout_lab.data.data_error import DataError

__all__ = ["CIFAR", "SOURCES", "SPLITS", "BatchedSource", "File", "Source", "files", "stored"]

SPLITS = ("train", "test")


@dataclass(frozen=True)
class File:
    """A published file, compressed: its name with ``.gz``, its bytes and their SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """A data set in idx files: (images, labels) for every split.

    ``contents`` are the :attr:`LabelledImages.sha256` of the published splits, as far as they are known.
    """

    url: str
    classes: tuple[str, ...]
    splits: dict[str, tuple[File, File]]
    contents: dict[str, str]


@dataclass(frozen=True)
class BatchedSource:
    """A data set in pickled batches, published as one archive.

    ``folder`` is the one in the archive, ``splits`` its files with the batches of every split, ``meta`` the one with
    the names of the classes, under the key ``classes``; the labels are under the key ``labels`` of a batch.
    """

    url: str
    archive: File
    folder: str
    splits: dict[str, tuple[str, ...]]
    meta: str
    labels: str
    classes: str

    def names(self, split: str) -> tuple[str, ...]:
        """The files of a split: its batches, then the one with the names of the classes."""
        return (*self.splits[split], self.meta)


def _splits(*files: tuple[int, str]) -> dict[str, tuple[File, File]]:
    names = ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")
    train, test = (
        tuple(File(f"{prefix}-{name}", *file) for name, file in zip(names, pair, strict=True))
        for prefix, pair in (("train", files[:2]), ("t10k", files[2:]))
    )
    return {"train": (train[0], train[1]), "test": (test[0], test[1])}


# Sizes and SHA-256 are computed from the published files, except for KMNIST's train split: its two are those that
# TensorFlow Datasets (url_checksums/kmnist.txt) and torchvision-ruby record independently of each other.
SOURCES = {
    "mnist": Source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        tuple("0123456789"),
        _splits(
            (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ),
        {
            "train": "d18cfd466eb143ac1097fde604dba9eec4116885869d04cc648b510949f9e88c",
            "test": "a0863a96c44e5666edbb30c4071ee79ca0514c621e6349c5967fc78e7305c891",
        },
    ),
    "fashion-mnist": Source(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        _splits(
            (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        ),
        {
            "train": "1f243a60b4b748a44c48b9a6f6907be2a08bee3e4e226f0e86fbde8e147b745a",
            "test": "9a494dc49efeb996f4076c469b31cd058152067b1594ba6ab85dd739fce3775e",
        },
    ),
    "kmnist": Source(
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        _splits(
            (18_165_135, "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4"),
            (29_497, "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17"),
            (3_041_136, "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5"),
            (5_120, "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c"),
        ),
        {"test": "d6fff84ee57a945a979acefb5a17d7f5c4854180675acc6d2480dd28299012af"},
    ),
}


# The SHA-256 are those that Keras, torchvision's prototypes and others record independently of each other; the MD5 that
# the authors publish, c58f30108f718f92721af3b95e74349a and eb9058c3a382ffc7106e4002c42a8d85, belong to the same files.
CIFAR = {
    "cifar10": BatchedSource(
        "https://www.cs.toronto.edu/~kriz/",
        File(
            "cifar-10-python.tar.gz",
            170_498_071,
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
        "cifar-10-batches-py",
        {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
        meta="batches.meta",
        labels="labels",
        classes="label_names",
    ),
    "cifar100": BatchedSource(
        "https://www.cs.toronto.edu/~kriz/",
        File(
            "cifar-100-python.tar.gz",
            169_001_437,
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        ),
        "cifar-100-python",
        {"train": ("train",), "test": ("test",)},
        meta="meta",
        labels="fine_labels",
        classes="fine_label_names",
    ),
}


def files(name: str, split: str) -> tuple[File, ...]:
    """The files to fetch for a split: the images and the labels, or the archive with both.

    Example:
        >>> [file.name for file in files("mnist", "test")]
        ['t10k-images-idx3-ubyte.gz', 't10k-labels-idx1-ubyte.gz']
    """
    if name not in SOURCES and name not in CIFAR:
        raise DataError(f"there is no data set {name!r} in files: expected one of {', '.join((*SOURCES, *CIFAR))}")
    if split not in SPLITS:
        raise DataError(f"{name} has no split {split!r}: expected one of {', '.join(SPLITS)}")
    return (CIFAR[name].archive,) if name in CIFAR else SOURCES[name].splits[split]


def stored(name: str, split: str) -> tuple[str, ...]:
    """The files that a folder with a split holds, by their compressed names.

    Example:
        >>> stored("cifar10", "test")
        ('test_batch.xz', 'batches.meta.xz')
    """
    if name in CIFAR:
        return tuple(f"{file}.xz" for file in CIFAR[name].names(split))
    return tuple(file.name for file in files(name, split))
