from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from contextual_dropout_lab.data import DamagedImagesWarning, DataError, ImageFolder, image_folder, read_folder
from contextual_dropout_lab.data.formats.jpeg_png import MAX_PIXELS, decode
from contextual_dropout_lab.data.image_files import Files

CLASSES = ("n01", "n02", "n10")


def picture(seed: int, mode: str = "RGB", format: str = "JPEG", sides: tuple[int, int] = (8, 8)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (sides[1], sides[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, format)
    return file.getvalue()


def image_net() -> dict[str, bytes]:
    return {
        f"{split}/{name}/{name}_{number}.JPEG": picture(100 * order + 10 * number + (split == "val"))
        for split in ("train", "val")
        for order, name in enumerate(CLASSES)
        for number in (0, 1, 10, 2)
    }


def tiny_image_net() -> dict[str, bytes]:
    files = {}
    lines = []
    for name, content in image_net().items():
        split, label, file = name.split("/")
        if split == "train":
            files[f"train/{label}/images/{file}"] = content
            files[f"train/{label}/{label}_boxes.txt"] = b"0 0 1 1"
        else:
            files[f"val/images/{file}"] = content
            lines.append(f"{file}\t{label}\t0\t0\t62\t63\n")
    return files | {"val/val_annotations.txt": "".join(lines[::-1]).encode(), "wnids.txt": b"n02\nn01\nn10\n"}


def unpack(files: dict[str, bytes], root: Path) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def pack(files: dict[str, bytes], path: Path, top: str = "", mode: str = "w:xz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("split", ["train", "val"])
def test_all_layouts_packed_or_not_are_the_same_set(tmp_path: Path, split: str) -> None:
    roots = [
        unpack(image_net(), tmp_path / "imagenet"),
        unpack(tiny_image_net(), tmp_path / "tiny"),
        unpack(dict(reversed(tiny_image_net().items())), tmp_path / "reversed"),
        pack(image_net(), tmp_path / "imagenet.tar", mode="w"),
        pack(tiny_image_net(), tmp_path / "tiny.tar.xz", top="tiny-imagenet-20/"),
        pack(dict(reversed(tiny_image_net().items())), tmp_path / "reversed.tar.gz", top="./some/", mode="w:gz"),
    ]
    sets = [read_folder(root, split, 8, workers=workers) for root in roots for workers in (0, 3)]
    assert len({data.sha256 for data in sets}) == 1
    assert {data.classes for data in sets} == {CLASSES}
    assert sets[0].images.shape == (12, 3, 8, 8)
    assert sets[0].labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_images_are_those_of_their_files_sorted_by_class_and_name(tmp_path: Path) -> None:
    folder = ImageFolder(unpack(image_net(), tmp_path), "train", 8)
    assert folder.names[:4] == [f"train/n01/n01_{number}.JPEG" for number in (0, 1, 10, 2)]
    for number, name in enumerate(folder.names):
        expected = np.asarray(Image.open(io.BytesIO(image_net()[name]))).transpose(2, 0, 1)
        assert np.array_equal(folder[number][0].numpy(), expected)
        assert folder[number][1] == CLASSES.index(name.split("/")[1])


def test_labels_of_val_are_those_of_train_even_if_classes_are_missing(tmp_path: Path) -> None:
    files = {name: content for name, content in image_net().items() if not name.startswith("val/n01")}
    assert ImageFolder(unpack(files, tmp_path), "val", 8).labels.tolist() == [1] * 4 + [2] * 4
    foreign = pack({"train/a/1.png": picture(0, format="PNG"), "val/b/1.png": b""}, tmp_path / "foreign.tar.xz")
    with pytest.raises(DataError, match=r"foreign\.tar\.xz has no class b in train/, but in val/"):
        ImageFolder(foreign, "val", 8)


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_class_folder_without_images_is_named(tmp_path: Path, split: str, packed: bool) -> None:
    root = unpack(image_net(), tmp_path / "some")
    (root / split / "n00").mkdir()
    (root / split / "n03" / "images").mkdir(parents=True)
    (root / split / "n03" / "notes.txt").touch()
    (root / split / ".cache").mkdir()
    if packed:
        with tarfile.open(root := tmp_path / "some.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "some", "some")
    with pytest.raises(DataError, match=rf"folder {split}/n00 has no images \(2 such .* that end in \.jpeg, .*remove"):
        ImageFolder(root, split, 8)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("packed", [True, False])
def test_a_data_loader_gives_the_same_images(tmp_path: Path, workers: int, packed: bool) -> None:
    root = pack(tiny_image_net(), tmp_path / "a.tar.xz") if packed else unpack(tiny_image_net(), tmp_path / "b")
    folder, everything = ImageFolder(root, "train", 8), read_folder(root, "train", 8)
    images, labels = zip(*DataLoader(folder, batch_size=5, num_workers=workers), strict=True)
    assert torch.equal(torch.cat(images), everything.images)
    assert torch.equal(torch.cat(labels), everything.labels)


def test_a_pickled_folder_reads_its_archive_again(tmp_path: Path) -> None:
    folder = ImageFolder(pack(image_net(), tmp_path / "a.tar.xz"), "train", 8)
    content = pickle.dumps(folder)
    assert len(content) < 10_000
    assert torch.equal(pickle.loads(content)[3][0], folder[3][0])


@pytest.mark.parametrize("workers", [0, 2])
def test_damaged_images_are_named_and_counted(tmp_path: Path, workers: int) -> None:
    files = image_net()
    files["train/n02/n02_1.JPEG"] = files["train/n02/n02_1.JPEG"][:200]
    files["train/n10/n10_2.JPEG"] = b"<html>"
    root = unpack(files, tmp_path)
    with pytest.raises(DataError, match=r"train/n02/n02_1.JPEG cannot be decoded \(.*[Tt]runcated"):
        read_folder(root, "train", 8, workers=workers)
    with pytest.warns(DamagedImagesWarning) as caught:
        data = read_folder(root, "train", 8, on_error="skip", workers=workers)
    message = str(caught[0].message)
    assert "2 of 12 images were left out" in message
    assert "n02_1.JPEG" in message
    assert "n10_2.JPEG" in message
    assert data.labels.tolist() == [0] * 4 + [1] * 3 + [2] * 3
    folder = ImageFolder(root, "train", 8)
    damaged = folder.damaged(workers)
    assert list(damaged) == ["train/n02/n02_1.JPEG", "train/n10/n10_2.JPEG"]
    rest = folder.without(damaged)
    assert torch.equal(torch.stack([image for image, _ in (rest[i] for i in range(len(rest)))]), data.images)
    assert len(folder) == 12


@pytest.mark.parametrize(
    ("mode", "format"), [("L", "JPEG"), ("CMYK", "JPEG"), ("P", "PNG"), ("RGBA", "PNG"), ("1", "PNG")]
)
def test_all_images_become_coloured(mode: str, format: str) -> None:
    image = decode(picture(1, mode, format), 8, "some")
    assert image.shape == (3, 8, 8)
    assert image.dtype == torch.uint8
    if mode == "L":
        assert torch.equal(image[0], image[2])


def test_images_cover_the_square_and_are_cut_around_their_middle() -> None:
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = (10, 20, 30)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    assert (decode(file.getvalue(), 20, "some") == torch.tensor([10, 20, 30])[:, None, None]).all()
    assert decode(file.getvalue(), 5, "some")[:, 2, 2].tolist() == [10, 20, 30]


@pytest.mark.parametrize("sides", [(2**13 + 1, 2**13), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_decompression_bombs_are_refused(sides: tuple[int, int]) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *sides, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(10**6))) + chunk(b"IEND", b"")
    with pytest.raises(DataError, match=f"bomb.png cannot be decoded .*({MAX_PIXELS}|bomb|exceeds)"):
        decode(bomb, 8, "bomb.png")


def test_other_formats_are_refused() -> None:
    for format in ("GIF", "BMP", "TIFF", "PPM", "EPS"):
        with pytest.raises(DataError, match="some cannot be decoded"):
            decode(picture(0, format=format), 8, "some")


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(["JPEG", "PNG"]), st.data())
def test_mutated_images_are_decoded_or_refused(format: str, data: st.DataObject) -> None:
    content = bytearray(picture(0, format=format))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        assert decode(bytes(content[: data.draw(st.integers(0, len(content)))]), 8, "some").shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (b"../../train/n01/n01_0.JPEG\tn01\n", r"line 1 of val/val_annotations.txt is '\.\./\.\./train"),
        (b"/etc/passwd\tn01\n", "line 1 .*expected the name of a file in val/images/"),
        (b"n01_0.JPEG\n", "line 1 "),
        (b"", "line 1 "),
        (b"n01_0.JPEG\tn01\n\xff\xfe\n", "line 2 "),
        (b"n01_0.JPEG\tn01\n", "val/images/n01_1.JPEG and 10 others have no line"),
    ],
)
def test_annotations_that_do_not_fit_are_refused(tmp_path: Path, annotations: bytes, message: str) -> None:
    root = unpack(tiny_image_net() | {"val/val_annotations.txt": annotations}, tmp_path)
    with pytest.raises(DataError, match=message):
        ImageFolder(root, "val", 8)


def test_escapes_and_links_in_an_archive_are_no_images(tmp_path: Path) -> None:
    path = pack(image_net() | {"../train/n01/x.JPEG": b"", "train/../../n01/y.JPEG": b""}, tmp_path / "a.tar", mode="w")
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("train/n01/link.JPEG")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert len(ImageFolder(path, "train", 8)) == 12
    assert [found.name for found in tmp_path.rglob("*")] == ["a.tar"]


def test_hidden_and_other_files_are_no_images_and_circles_end(tmp_path: Path) -> None:
    root = unpack(
        image_net() | {"train/n01/._n01_0.JPEG": b"", "train/n01/.DS_Store": b"", "train/a.JPEG": b""}, tmp_path
    )
    (root / "train" / "n01" / "images").symlink_to(root / "train")
    assert len(ImageFolder(root, "train", 8)) == 12 + 1  # train/n01/images/a.JPEG, through the link
    (root / "train" / "a.JPEG").unlink()
    assert len(ImageFolder(root, "train", 8)) == 12


def test_what_is_missing_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="none does not exist"):
        ImageFolder(tmp_path / "none", "train", 8)
    with pytest.raises(DataError, match=r"has no images of the split train: expected train/<class>/\*.JPEG"):
        ImageFolder(tmp_path, "train", 8)
    root = unpack(image_net(), tmp_path)
    with pytest.raises(DataError, match="no split 'test': expected one of train, val"):
        ImageFolder(root, "test", 8)
    with pytest.raises(ValueError, match="size is 0"):
        ImageFolder(root, "train", 0)
    with pytest.raises(ValueError, match="on_error is 'ignore'"):
        read_folder(root, "train", 8, on_error="ignore")
    (root / "train/n01/n01_0.JPEG").unlink()
    with pytest.raises(DataError, match=r"n01_0.JPEG cannot be read"):
        Files(root).read("train/n01/n01_0.JPEG")
    os.mkfifo(root / "train/n01/n01_0.JPEG")
    with pytest.raises(DataError, match=r"n01_0.JPEG cannot be read \(there is no such file\)"):
        Files(root).read("train/n01/n01_0.JPEG")
    (root / "train/n01/n01_0.JPEG").unlink()
    monkeypatch.setattr(image_folder, "MAX_MEMORY", 1000)
    with pytest.raises(DataError, match="11 images take 2112 bytes: expected at most 1000; use ImageFolder"):
        read_folder(root, "train", 8)


def test_tiny_image_net_is_known(real: Path) -> None:
    path = real / "tiny-imagenet-20" / "tiny-imagenet-20.tar.xz"
    if not path.is_file():
        pytest.skip("no tiny-imagenet-20 here")
    for split, each in (("train", 500), ("val", 50)):
        folder = ImageFolder(path, split, 64)
        assert folder.labels.bincount().tolist() == [each] * 20
        assert folder.classes[:2] == ("n01641577", "n02106662")
    val = read_folder(path, "val", 64, workers=2)
    assert val.images.shape == (1000, 3, 64, 64)
    assert val.sha256 == read_folder(path, "val", 64).sha256
