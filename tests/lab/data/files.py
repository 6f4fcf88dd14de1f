"""Small idx files, and the folder of the real ones where there is one."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def idx_bytes(array: npt.NDArray[np.generic]) -> bytes:
    header = bytes([0, 0, CODES[array.dtype.name], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_split(
    folder: Path,
    prefix: str = "t10k",
    size: int = 20,
    seed: int = 0,
    compressed: bool = True,
    shape: tuple[int, int] = (4, 3),
) -> None:
    """``size`` images of 4 by 3 pixels, or of another shape, with labels 0..9 under the names of the MNIST family."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (
        (f"{prefix}-images-idx3-ubyte", rng.integers(0, 256, (size, *shape), dtype=np.uint8)),
        (f"{prefix}-labels-idx1-ubyte", (np.arange(size) % 10).astype(np.uint8)),
    ):
        content = idx_bytes(array)
        (folder / f"{name}.gz" if compressed else folder / name).write_bytes(
            gzip.compress(content) if compressed else content
        )


def real_data() -> Path | None:
    """The folder of ``CONTEXTUAL_DROPOUT_DATA``, or ``shared/data`` next to the project."""
    shared = Path(__file__).resolve().parents[4] / "shared" / "data"
    folder = Path(os.environ.get("CONTEXTUAL_DROPOUT_DATA") or shared)
    return folder if (folder / "mnist").is_dir() else None
