from __future__ import annotations

import gzip
import hashlib
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from contextual_dropout_lab import data
from contextual_dropout_lab.data import loading
from contextual_dropout_lab.data.sources import SOURCES
from tests.lab.data.files import idx_bytes, write_split

MNIST_COUNTS = {
    "train": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "test": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}


@pytest.mark.parametrize(
    ("name", "split"), [("mnist", "train"), ("mnist", "test"), ("fashion-mnist", "train"), ("kmnist", "test")]
)
def test_the_published_files_are_known(real: Path, name: str, split: str) -> None:
    if not (real / name).is_dir():
        pytest.skip(f"no {name} here")
    for path, file in zip(data.locate(name, split, real), SOURCES[name].splits[split], strict=True):
        content = path.read_bytes() if path.suffix == ".gz" else None
        assert content is None or (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
    loaded = data.load(name, split, real)
    assert loaded.sha256 == SOURCES[name].contents[split]
    size = 60_000 if split == "train" else 10_000
    assert loaded.images.shape == (size, 28, 28)
    expected = MNIST_COUNTS[split] if name == "mnist" else [size // 10] * 10
    assert loaded.labels.bincount().tolist() == expected


def test_another_set_under_the_same_names_is_refused(real: Path, tmp_path: Path) -> None:
    for path in data.locate("mnist", "test", real):
        shutil.copy(path, tmp_path)
    assert len(data.mnist("test", tmp_path)) == 10_000
    with pytest.raises(data.DataError, match="they are the test split of mnist; put the files"):
        data.fashion_mnist("test", tmp_path)


def test_every_name_reads_its_own_folder(tmp_path: Path) -> None:
    for seed, name in enumerate(SOURCES):
        for prefix in ("train", "t10k"):
            write_split(tmp_path / name, prefix, size=20 + 10 * (prefix == "train"), seed=seed)
    named = {"mnist": data.mnist, "fashion-mnist": data.fashion_mnist, "kmnist": data.kmnist}
    digests = set()
    for name, function in named.items():
        assert [len(function(split, tmp_path)) for split in ("train", "test")] == [30, 20]
        assert function("test", tmp_path).sha256 == data.load(name, "test", tmp_path).sha256
        assert function("test", tmp_path).classes == SOURCES[name].classes
        digests.add(function("test", tmp_path).sha256)
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(19, dtype=np.uint8) % 10, r"labels are \(19,\)"),
        (np.full(20, 10, dtype=np.uint8), "label 0 is 10"),
        (np.zeros(20, dtype=np.float32), "labels are of torch.float32: expected an integer type"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_their_file(
    tmp_path: Path, labels: np.ndarray[tuple[int], np.dtype[np.generic]], message: str
) -> None:
    write_split(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(labels)))
    with pytest.raises(data.DataError, match=f"t10k-images-.* and t10k-labels-.* do not hold mnist, test: .*{message}"):
        data.mnist("test", tmp_path)


def test_the_digits_are_split_as_documented() -> None:
    train, test = data.digits("train"), data.digits("test")
    assert (len(train), len(test)) == (1347, 450)
    assert set(test.images.unique().tolist()) == {round(level * 255 / 16) for level in range(17)}
    everything = torch.cat([train.labels, test.labels]).bincount()
    assert (test.labels.bincount() - everything * 450 / 1797).abs().max() < 1
    # Another split would make results incomparable: these digests are part of the interface.
    assert train.sha256.startswith("50bbea8a34dbc683")
    assert test.sha256.startswith("76efb801b327e713")


@pytest.mark.parametrize("file", [loading.DIGITS_FILE, "somewhere else"])
def test_the_digits_are_those_of_scikit_learn(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "DIGITS_FILE", file)
    both = [data.digits(split) for split in ("train", "test")]
    ours = np.concatenate([np.column_stack([each.images.flatten(1), each.labels]) for each in both])
    bunch = load_digits()
    theirs = np.column_stack([np.rint(bunch.data * 255 / 16), bunch.target])
    np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


def test_without_scikit_learn_the_digits_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(data.DataError, match="pip install scikit-learn"):
        data.digits("test")


@pytest.mark.parametrize(("name", "split"), [("cifar", "test"), ("mnist", "validation"), ("digits", "validation")])
def test_unknown_names_and_splits_are_refused(name: str, split: str) -> None:
    with pytest.raises(data.DataError, match="expected one of"):
        data.load(name, split)


def test_tiny_imagenet_is_found_in_a_folder_or_an_archive(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-20"
    for name in ("a", "b"):
        place = folder / "train" / name / "images"
        place.mkdir(parents=True)
        Image.fromarray(np.full((64, 64, 3), 200, dtype=np.uint8)).save(place / "one.JPEG")
    found = data.load("tiny-imagenet-20", "train", tmp_path)
    assert (tuple(found.images.shape), found.classes) == ((2, 3, 64, 64), ("a", "b"))
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / "tiny-imagenet-20.tar.xz", "w:xz") as archive:
        archive.add(folder / "train", "train")
    assert data.load("tiny-imagenet-20", "train", other).sha256 == found.sha256


def test_tiny_imagenet_that_is_nowhere_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(data.DataError, match=r"none of these places(.|\n)*tiny-imagenet-20\.tar\.xz"):
        data.load("tiny-imagenet-20", "test", tmp_path)
    with pytest.raises(data.DataError, match="no split 'val'"):
        data.load("tiny-imagenet-20", "val", tmp_path)
