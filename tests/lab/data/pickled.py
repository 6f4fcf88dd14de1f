"""Batches of CIFAR as Python 2 and numpy 1 wrote them, and pickles that mean harm."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

Uint8s = npt.NDArray[np.uint8]

NAMES = {"cifar10": [f"thing {i}" for i in range(10)], "cifar100": [f"thing {i}" for i in range(100)]}
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


def pickled(content: dict[str, object]) -> bytes:
    return b"\x80\x02" + _item(content) + b"."


def _item(value: object) -> bytes:
    if isinstance(value, dict):
        return b"}q\x01(" + b"".join(_item(key) + _item(part) for key, part in value.items()) + b"u"
    if isinstance(value, list):
        return b"]r\xff\xff\xff\x7f(" + b"".join(_item(part) for part in value) + b"e"
    if isinstance(value, int):
        return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
    if isinstance(value, np.ndarray):
        return _array(value)
    assert isinstance(value, str)
    return b"U" + bytes([len(value)]) + value.encode("latin-1") + b"q\x02"


def _array(array: npt.NDArray[np.generic], shape: tuple[int, ...] | None = None) -> bytes:
    sides = b"".join(b"J" + struct.pack("<i", side) for side in shape or array.shape)
    kind = array.dtype.str[1:].encode()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01("
        + sides
        + b"tcnumpy\ndtype\nU\x02"
        + kind
        + b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", array.nbytes)
        + array.tobytes()
        + b"tb"
    )


def array_of(array: npt.NDArray[np.generic], shape: tuple[int, ...]) -> bytes:
    """A batch whose array declares a shape of its own."""
    return b"\x80\x02}(U\x04data" + _array(array, shape) + b"u."


def batch(size: int = 20, seed: int = 0, labels: str = "labels", classes: int = 10) -> tuple[bytes, Uint8s, list[int]]:
    """A batch, its (N, 3072) bytes and its labels."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (size, 3072), dtype=np.uint8)
    numbers: list[int] = rng.integers(0, classes, size).tolist()
    files = [f"image {i}" for i in range(size)]
    return pickled({"batch_label": "some", labels: numbers, "data": images, "filenames": files}), images, numbers


def cifar_files(name: str, size: int = 20) -> dict[str, bytes]:
    """All files of a small CIFAR by their names."""
    classes = len(NAMES[name])
    if name == "cifar100":
        files = {part: batch(size, seed, "fine_labels", classes)[0] for seed, part in enumerate(("train", "test"))}
        return files | {"meta": pickled({"fine_label_names": list(NAMES[name])})}
    parts = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
    files = {part: batch(size, seed)[0] for seed, part in enumerate(parts)}
    return files | {"batches.meta": pickled({"num_cases_per_batch": size, "label_names": list(NAMES[name])})}


def write_cifar(folder: Path, name: str = "cifar10", size: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in cifar_files(name, size).items():
        (folder / file).write_bytes(content)
