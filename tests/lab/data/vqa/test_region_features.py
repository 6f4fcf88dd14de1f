from __future__ import annotations

import contextlib
import io
import os
import pickle
import tempfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.vqa import NpzFeatures, Regions, pad_regions, read_regions
from tests.lab.data.gaussian import LIMIT, scores
from tests.lab.data.vqa.files import npy

SIZE = 16


def features(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, SIZE)).astype(np.float32)


def write(folder: Path, name: str = "COCO_val2014_000000000042.jpg.npz", **arrays: Any) -> Path:
    np.savez_compressed(folder / name, **arrays)
    return folder / name


def write_entries(folder: Path, **entries: bytes) -> Path:
    """An npz file of any bytes."""
    path = folder / "7.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in entries.items():
            archive.writestr(f"{key}.npy", content)
    return path


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_both_layouts_and_all_types_are_read(tmp_path: Path, dtype: str) -> None:
    x = features(5).astype(dtype)
    more = {"num_bbox": np.int64(5), "bbox": np.zeros((5, 4)), "image_h": 480, "image_w": 640}
    for stored in (x, x.T, np.asfortranarray(x), np.ascontiguousarray(x.T)):
        read = read_regions(write(tmp_path, x=stored, **more), SIZE)
        assert read.dtype == torch.float32
        assert np.array_equal(read.numpy(), x.astype(np.float32))


def test_as_many_regions_as_features_are_read_as_mcan_stores_them(tmp_path: Path) -> None:
    x = features(SIZE)
    assert np.array_equal(read_regions(write(tmp_path, x=x.T), SIZE).numpy(), x)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "has no array 'x'"),
        ({"x": np.zeros((5, SIZE + 1), "f4")}, rf"x is \(5, 17\) of float32: expected \({SIZE}, n\) or \(n, {SIZE}\)"),
        ({"x": np.zeros((SIZE,), "f4")}, r"x is \(16,\)"),
        ({"x": np.zeros((1, 5, SIZE), "f4")}, r"x is \(1, 5, 16\)"),
        ({"x": np.zeros((0, SIZE), "f4")}, r"x is \(0, 16\)"),
        ({"x": np.zeros((1001, SIZE), "f4")}, "n from 1 to 1000"),
        ({"x": np.zeros((5, SIZE), "i4")}, "of floating point"),
        ({"x": np.full((5, SIZE), np.nan, "f4")}, "not finite"),
        ({"x": np.full((5, SIZE), 1e300)}, "not finite"),
        ({"x": np.zeros((5, SIZE), "c8")}, "expected numbers"),
        ({"x": np.zeros((5, SIZE), "f4"), "num_bbox": 6}, "has 5 regions in x: expected 6, its num_bbox"),
        ({"x": np.zeros((5, SIZE), "f4"), "num_bbox": [5, 5]}, "num_bbox is .*expected one number"),
        ({"x": np.zeros((5, SIZE), "f4"), "bbox": np.zeros((4, 4))}, r"bbox is \(4, 4\) .*expected \(5, 4\)"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_regions(write(tmp_path, **arrays), SIZE)


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, (Evil.path,)

    path = ""


def test_pickled_objects_are_refused_and_not_run(tmp_path: Path) -> None:
    Evil.path = str(tmp_path / "was run")
    path = write(tmp_path, x=np.array([Evil()] * SIZE, dtype=object).reshape(1, SIZE))
    with pytest.raises(DataError, match="holds Python objects, which could run code and are refused"):
        read_regions(path, SIZE)
    as_bytes = write_entries(tmp_path, x=pickle.dumps(Evil()))
    with pytest.raises(DataError, match="not a sound npy file"):
        read_regions(as_bytes, SIZE)
    structured = np.zeros((1, SIZE), dtype=[("a", object)])
    with pytest.raises(DataError, match="Python objects"):
        read_regions(write(tmp_path, x=structured), SIZE)
    assert not Path(Evil.path).exists()


def peak(path: Path, message: str) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            read_regions(path, SIZE)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(f"(10**11, {SIZE})"), "not a sound npy file"),
        (header(f"(100000000000, {SIZE})"), "n from 1 to 1000"),
        (header(f"(-1, {SIZE})"), "expected numbers"),
        (header(f"(True, {SIZE})"), "expected numbers"),
        (header(f"(1000, {SIZE})"), "has 0 bytes of items: expected 64000"),
        (header(f"(1, {SIZE})", "'|O'"), "Python objects"),
        (header(f"(1, {SIZE})", "'<f4', " * 400), "not a sound npy file"),
        (header(f"(1, {SIZE})") + bytes(2**26), "has more than 64 bytes of items"),
        (header("9" * 900), "not a sound npy file"),
    ],
)
def test_headers_that_lie_take_no_memory(tmp_path: Path, content: bytes, message: str) -> None:
    assert peak(write_entries(tmp_path, x=content), message) < 2**20


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "7.npz", "w", method) as archive:
        archive.writestr("x.npy", npy(features(3)))
    with pytest.raises(DataError, match=f"is compressed by method {method}"):
        read_regions(tmp_path / "7.npz", SIZE)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_truncated_and_changed_files_raise_data_errors_only(data: st.DataObject) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=features(3).T, num_bbox=3, bbox=np.zeros((3, 4)))
    content = bytearray(buffer.getvalue())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "7.npz")
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        with pytest.raises(DataError, match=r"7\.npz"):
            read_regions(path, SIZE)
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        with contextlib.suppress(DataError):
            assert read_regions(path, SIZE).shape[1] == SIZE


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=80), st.sampled_from([b"", b"\x93NUMPY", header("(1, 16)")[:12], npy(np.zeros(3))[:60]]))
def test_arbitrary_arrays_raise_data_errors_only(rest: bytes, start: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(DataError):
        read_regions(write_entries(Path(folder), x=start + rest), SIZE)


def test_regions_are_padded_cut_and_masked() -> None:
    images = [torch.from_numpy(features(n, n)) for n in (2, 4, 7)]
    regions = pad_regions(images, regions=5)
    assert regions.features.shape == (3, 5, SIZE)
    assert regions.padding.tolist() == [[False] * 2 + [True] * 3, [False] * 4 + [True], [False] * 5]
    for image, row in zip(images, regions.features, strict=True):
        assert torch.equal(row[: len(image)], image[:5])
        assert not row[len(image) :].any()


def test_noise_is_on_the_regions_only() -> None:
    regions = Regions(torch.ones(4, 10, 500), torch.arange(10).expand(4, 10) >= 6)
    noisy = regions.noisy(5.0, torch.Generator().manual_seed(0))
    assert not noisy.features[:, 6:].any()
    assert all(abs(score) < LIMIT for score in scores((noisy.features[:, :6] - 1) / 5).values())
    assert torch.equal(noisy.padding, regions.padding)
    assert (regions.features == 1).all()
    assert torch.equal(noisy.features, regions.noisy(5.0, torch.Generator().manual_seed(0)).features)
    with pytest.raises(ValueError, match="standard deviation of the noise is -1"):
        regions.noisy(-1, torch.Generator())


def test_a_folder_gives_the_images_that_are_asked_for(tmp_path: Path) -> None:
    for image, n in ((42, 2), (7, 3)):
        write(tmp_path, f"COCO_val2014_{image:012}.jpg.npz", x=features(n, image).T)
    folder = NpzFeatures(tmp_path, size=SIZE, regions=4)
    assert folder.image_ids == {7, 42}
    regions = folder.load([42, 7, 42])
    assert (~regions.padding).sum(1).tolist() == [2, 3, 2]
    assert np.array_equal(regions.features[1, :3].numpy(), features(3, 7))
    with pytest.raises(DataError, match="image 8 and 1 others have no features"):
        folder.load([7, 8, 9])


def test_folders_without_features_and_ambiguous_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no npz files"):
        NpzFeatures(tmp_path)
    write(tmp_path, "cat.npz", x=features(1))
    with pytest.raises(DataError, match=r"cat\.npz has no image id at its end"):
        NpzFeatures(tmp_path)
    (tmp_path / "cat.npz").unlink()
    for name in ("train_7.npz", "val_007.jpg.npz"):
        write(tmp_path, name, x=features(1))
    with pytest.raises(DataError, match="are of the same image"):
        NpzFeatures(tmp_path)
    with pytest.raises(DataError, match=r"1\.npz is not a file"):
        read_regions(tmp_path / "1.npz")
