from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import lzma
import pickle
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_dropout_lab import data
from contextual_dropout_lab.data.locations import VARIABLE, find
from contextual_dropout_lab.data.sources import CIFAR, File
from tests.lab.data.pickled import FOLDERS, NAMES, batch, cifar_files, pickled, write_cifar
from tests.lab.data.server import Answer, closed_port, serving

#: LabelledImages.sha256 of the published splits.
DIGESTS = {
    ("cifar10", "train"): "973ef2abb5897efc795681a4d79a6f5f642fa2bcb1a828f7476017c89db53a57",
    ("cifar10", "test"): "2c33b053d1cd726af8d86e174a96dd89d7000ba1412add026d68142375b89d51",
    ("cifar100", "test"): "9f0797cda23af3231dce0cca7e8d619c0607f6bb8ca05e9b95ff23e4d044c600",
}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in list(CIFAR.items()):
        monkeypatch.setitem(CIFAR, name, dataclasses.replace(source, url=closed_port()))


def archive(name: str, extra: list[tarfile.TarInfo] | None = None) -> bytes:
    """A small CIFAR as it is published."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in extra or []:
            tar.addfile(member)
        for file, content in cifar_files(name).items():
            member = tarfile.TarInfo(f"{FOLDERS[name]}/{file}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(("name", "split"), DIGESTS)
def test_the_published_batches_are_known(real: Path, name: str, split: str) -> None:
    if find(name, split, real) is None:
        pytest.skip(f"no {name} here")
    loaded = data.load(name, split, real)
    size, classes = (50_000 if split == "train" else 10_000), (10 if name == "cifar10" else 100)
    assert loaded.images.shape == (size, 3, 32, 32)
    assert loaded.labels.bincount().tolist() == [size // classes] * classes
    assert len(loaded.classes) == classes
    expected = ("airplane", "automobile") if name == "cifar10" else ("apple", "aquarium_fish")
    assert loaded.classes[:2] == expected
    assert loaded.sha256 == DIGESTS[name, split]


def test_python_reads_the_same(real: Path) -> None:
    path = real / "cifar100" / "cifar-100-python" / "test.xz"
    if not path.is_file():
        pytest.skip("no cifar100 here")
    with lzma.open(path) as file:
        batch = pickle.load(file, encoding="latin1")
    loaded = data.cifar100("test", real)
    assert np.array_equal(loaded.images.flatten(1).numpy(), batch["data"])
    assert loaded.labels.tolist() == batch["fine_labels"]


@pytest.mark.parametrize("name", CIFAR)
@pytest.mark.parametrize("sub", [".", "set", "set/own", "own"])
def test_batches_are_found_plain_or_compressed(tmp_path: Path, name: str, sub: str) -> None:
    folder = tmp_path / sub.replace("set", name).replace("own", FOLDERS[name])
    write_cifar(folder, name)
    plain = data.load(name, "train", tmp_path)
    assert len(plain) == (100 if name == "cifar10" else 20)
    assert plain.classes == tuple(NAMES[name])
    for path in list(folder.iterdir()):
        path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    assert data.load(name, "train", tmp_path).sha256 == plain.sha256
    assert find(name, "train", tmp_path) == folder


def test_planes_are_red_green_blue_and_batches_in_order(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    loaded = data.cifar10("train", tmp_path)
    for number in range(5):
        _, images, labels = batch(seed=number)
        part = slice(20 * number, 20 * number + 20)
        assert loaded.images[part, 2, 5, 7].tolist() == images[:, 2 * 1024 + 5 * 32 + 7].tolist()
        assert loaded.labels[part].tolist() == labels
    assert loaded.inputs().shape == (100, 3072)
    assert torch.equal(loaded.pixels()[:, 1, 0, 0], loaded.inputs()[:, 1024])


@pytest.mark.parametrize("name", CIFAR)
def test_the_archive_is_fetched_once_and_read_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, name: str
) -> None:
    content, file = archive(name), CIFAR[name].archive.name
    write_cifar(tmp_path, name)
    with serving({f"/{file}": Answer(content)}) as (url, asked):
        published = File(file, len(content), hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(CIFAR, name, dataclasses.replace(CIFAR[name], url=url, archive=published))
        for split in ("train", "test"):
            assert data.load(name, split).sha256 == data.load(name, split, tmp_path).sha256
    assert asked == [f"/{file}"]
    assert [path.name for path in (cache / name).iterdir()] == [file]


def test_nothing_of_an_archive_leaves_it(tmp_path: Path) -> None:
    link, escape = tarfile.TarInfo("cifar-10-batches-py/test_batch.link"), tarfile.TarInfo("../escape")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    folder = tmp_path / "cifar10"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz").write_bytes(archive("cifar10", [link, escape]))
    assert len(data.cifar10("test", tmp_path)) == 20
    assert [path.name for path in tmp_path.rglob("*")] == ["cifar10", "cifar-10-python.tar.gz"]


def test_a_batch_that_is_a_link_in_the_archive_is_missing(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        link = tarfile.TarInfo("cifar-10-batches-py/test_batch")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(data.DataError, match=r"has no cifar-10-batches-py/test_batch, .*batches.meta: expected"):
        data.cifar10("test", tmp_path)


def test_offline_the_message_says_where_and_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    write_cifar(tmp_path / "cifar10")
    (tmp_path / "cifar10" / "data_batch_3").unlink()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(data.DataError) as error:
        data.cifar10("train")
    for part in (
        f"{tmp_path / 'cifar10'}: data_batch_1, data_batch_2, data_batch_4, data_batch_5, batches.meta of the 6 files",
        f"{cache / 'cifar10'}: no such folder",
        "cannot be fetched",
        "or the archive cifar-10-python.tar.gz",
        VARIABLE,
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("test_batch", pickled({"labels": [1]}), "has no array 'data' with rows of 3072 bytes"),
        ("test_batch", pickled({"data": np.zeros((2, 3), np.uint8)}), "has no array 'data' with rows of 3072"),
        ("test_batch", pickled({"data": np.zeros((2, 3072), np.uint8)}), "no list 'labels' of 2 numbers"),
        ("test_batch", pickled({"data": np.zeros((1, 3072), np.uint8), "labels": [1, 2]}), "no list 'labels' of 1"),
        ("test_batch", pickled({"data": np.zeros((1, 3072), np.uint8), "labels": ["a"]}), "no list 'labels' of 1"),
        ("test_batch", pickled({"data": np.zeros((1, 3072), np.uint8), "labels": [10]}), "label 10: expected 0 to 9"),
        ("test_batch", pickled({"data": np.zeros((1, 3072), np.uint8), "labels": [-1]}), "label -1: expected 0 to 9"),
        ("test_batch", b"<html>", "is not a python batch of CIFAR"),
        ("test_batch", lzma.compress(b"<html>"), "is not a python batch of CIFAR"),
        ("batches.meta", pickled({"label_names": []}), "no list of strings 'label_names'"),
        ("batches.meta", pickled({"label_names": [1]}), "no list of strings 'label_names'"),
        ("batches.meta", pickled({}), "no list of strings 'label_names'"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_file(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    write_cifar(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(data.DataError, match=f"{file}.*{message}"):
        data.cifar10("test", tmp_path)


@settings(deadline=None, max_examples=60)
@given(st.booleans(), st.data())
def test_damaged_files_are_refused_or_read(compressed: bool, draw: st.DataObject) -> None:
    content, _, _ = batch(size=2)
    damaged = bytearray(lzma.compress(content) if compressed else content)
    for _ in range(draw.draw(st.integers(1, 3))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        write_cifar(Path(folder), size=2)
        Path(folder, "test_batch").write_bytes(damaged[: draw.draw(st.integers(len(damaged) - 99, len(damaged)))])
        with contextlib.suppress(data.DataError):
            assert len(data.cifar10("test", folder)) == 2
