"""Tensors of a pass that may be run again: their versions, their memory, copies of their containers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch import Tensor

__all__ = ["MEMORY", "NotRepeatable", "copied", "storage_of", "version"]


#: Functions that hand out a tensor's memory: what is written there does not show in the tensor's version.
MEMORY = frozenset(
    {
        *(Tensor.data.__get__, Tensor.data.__set__, Tensor.numpy, Tensor.__array__, Tensor.set_),  # type: ignore[attr-defined]
        *(Tensor.untyped_storage, Tensor.storage, Tensor.data_ptr, Tensor.__dlpack__),
    }
)


def version(value: Any) -> int:
    """The number of changes of a tensor in place; inference tensors do not count them."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def storage_of(tensor: Tensor) -> int:
    """An identifier of a tensor's memory; 0 where there is none (sparse or nested layouts)."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # which of the two torch raises depends on the layout
        return 0


def copied(value: Any) -> Any:
    """Copy lists, dictionaries and arrays, so that a change of one does not show in another."""
    return copy.copy(value) if isinstance(value, list | dict | np.ndarray) else value


class NotRepeatable(BaseException):
    """Raised when a rerun does not follow the recording; not an Exception, so that no user code swallows it."""
