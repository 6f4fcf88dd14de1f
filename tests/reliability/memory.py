"""What a process holds."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from torch import Tensor

__all__ = ["live_tensors", "needs_proc", "resident"]

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="a process's memory is read from /proc, which only Linux has"
)


def resident() -> float:
    """Memory of this process, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def live_tensors() -> int:
    """Those that Python holds, also where only the garbage collector could still find them."""
    return sum(issubclass(type(each), Tensor) for each in gc.get_objects())
