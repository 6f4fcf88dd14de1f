"""Headers of .npy files are checked before memory is taken for their items."""

from __future__ import annotations

import io

import numpy as np
import pytest

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.formats.npy import read_header, read_items


def declaring(shape: tuple[int, ...]) -> io.BytesIO:
    """A file with the header of an array of this shape, and none of its items."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    file.seek(0)
    return file


@pytest.mark.parametrize("shape", [(10**20, 4, 4, 3), (0, 10**20, 4, 3)])
def test_impossible_sizes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="expected at most 1125899906842624 bytes"):
        read_header(declaring(shape), "some.npy")


def test_python_objects_and_missing_items_are_refused() -> None:
    objects = io.BytesIO()
    np.save(objects, np.array([{}], dtype=object))
    objects.seek(0)
    with pytest.raises(DataError, match="Python objects"):
        read_header(objects, "some.npy")
    file = declaring((4, 24))
    header = read_header(file, "some.npy")
    with pytest.raises(DataError, match="has 0 bytes of items: expected 96"):
        read_items(file, header, "some.npy")
