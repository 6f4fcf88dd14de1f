"""The reader of HDF5 files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.vqa import Hdf5Features, hdf5

SIZE = 6


def contents(**changes: Any) -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(3, 4, SIZE)).astype(np.float32)
    data = {"features": x, "num_boxes": np.array([2, 4, 1]), "image_ids": np.array([30, 10, 20])} | changes
    return {key: value for key, value in data.items() if value is not None}


def write(folder: Path, chunks: bool | None = None, **changes: Any) -> Path:
    path = folder / "some.h5"
    with h5py.File(path, "w") as file:
        for key, value in contents(**changes).items():
            file.create_dataset(key, data=value, chunks=chunks)
    return path


def check(path: Path) -> None:
    x = contents()["features"]
    features = Hdf5Features(path, size=SIZE, regions=3)
    assert features.image_ids == {10, 20, 30}
    regions = features.load([20, 10, 20])
    assert (~regions.padding).sum(1).tolist() == [1, 3, 1]
    assert np.array_equal(regions.features[1].numpy(), x[1, :3])
    assert np.array_equal(regions.features[2, 0].numpy(), x[2, 0])
    assert not regions.features[0, 1:].any()
    with pytest.raises(DataError, match="image 11 and 0 others have no features"):
        features.load([10, 11])


@pytest.mark.parametrize("chunks", [None, True])
def test_rows_are_those_of_their_images(tmp_path: Path, chunks: bool | None) -> None:
    check(write(tmp_path, chunks))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, "has no data set 'features'"),
        ({"image_ids": None}, "has no data set 'image_ids'"),
        ({"features": np.zeros((3, 4, SIZE + 1), "f4")}, r"features is \(3, 4, 7\)"),
        ({"features": np.zeros((3, 4, SIZE), "i4")}, "of floating point"),
        ({"features": np.zeros((3, 1001, SIZE), "f4")}, "R from 1 to 1000"),
        ({"image_ids": np.array([1, 2])}, r"image_ids is \(2,\) .*expected \(3,\) of whole numbers"),
        ({"image_ids": np.array([1.0, 2.0, 3.0])}, "whole numbers"),
        ({"image_ids": np.array([1, 2, 1])}, "has an image twice"),
        ({"num_boxes": np.array([0, 1, 1])}, "has an image of 0 regions: expected 1 to 4"),
        ({"num_boxes": np.array([5, 1, 1])}, "has an image of 5 regions"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Hdf5Features(write(tmp_path, **changes), size=SIZE)


def test_infinite_features_and_other_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, features=np.full((3, 4, SIZE), np.inf, "f4"))
    with pytest.raises(DataError, match="not finite"):
        Hdf5Features(path, size=SIZE).load([10])
    (tmp_path / "text.h5").write_text("text")
    with pytest.raises(DataError, match="cannot be opened"):
        Hdf5Features(tmp_path / "text.h5")


def test_a_few_bytes_that_declare_many_images_or_large_parts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (10**7, 4, SIZE), "f4", chunks=(1, 4, SIZE))
    assert path.stat().st_size < 10_000
    with pytest.raises(
        DataError, match=r"features is \(10000000, 4, 6\) of float32: expected .* for a file of this length"
    ):
        Hdf5Features(path, size=SIZE)
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (1000, 1000, SIZE), "f8", chunks=(1000, 1000, SIZE))
    chunk = 8 * 10**6 * SIZE
    monkeypatch.setattr(hdf5, "MAX_CHUNK", chunk - 1)
    with pytest.raises(DataError, match=f"stored in parts of {chunk} bytes"):
        Hdf5Features(path, size=SIZE)


@pytest.mark.parametrize("key", ["features", "num_boxes", "image_ids"])
@pytest.mark.parametrize("kind", ["external link", "soft link", "external storage", "virtual", "type", "group"])
def test_numbers_of_other_files_are_not_read(tmp_path: Path, key: str, kind: str) -> None:
    (folder := tmp_path / "other").mkdir()
    other, value = write(folder), contents()[key]
    raw = tmp_path / "raw"
    raw.write_bytes(value.tobytes())
    path = write(tmp_path, **{key: None})
    with h5py.File(path, "a") as file:
        if kind == "external link":
            file[key] = h5py.ExternalLink(str(other), key)
        elif kind == "soft link":
            file["away"], file[key] = h5py.ExternalLink(str(other), "/"), h5py.SoftLink(f"/away/{key}")
        elif kind == "external storage":
            file.create_dataset(key, value.shape, value.dtype, external=[(str(raw), 0, value.nbytes)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout(value.shape, value.dtype)
            layout[:] = h5py.VirtualSource(str(other), key, value.shape)
            file.create_virtual_dataset(key, layout)
        elif kind == "type":
            file[key] = np.dtype("f4")
        else:
            file.create_group(key)
    with pytest.raises(DataError, match=f"{key}.*of its own|{key} is kept in other files"):
        Hdf5Features(path, size=SIZE)


def test_without_h5py_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match="pip install h5py"):
        Hdf5Features(tmp_path / "some.h5")
