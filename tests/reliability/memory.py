"""What a process holds, and what a model does."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

__all__ = ["anatomy", "live_tensors", "needs_proc", "resident"]

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="a process's memory is read from /proc, which only Linux has"
)


def resident() -> float:
    """Memory of this process, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def live_tensors() -> int:
    """Those that Python holds, also where only the garbage collector could still find them."""
    return sum(issubclass(type(each), Tensor) for each in gc.get_objects())


def anatomy(model: nn.Module) -> list[Any]:
    """Every module with its class, mode, hooks and attributes, its children and parameters, and their hooks."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks", "_state_dict_pre_hooks")
    contents = ("_modules", "_parameters", "_buffers", "__dict__")
    return [
        (
            (name, type(module), module.training),
            [len(getattr(module, kind)) for kind in kinds],
            [list(getattr(module, kind)) for kind in contents],
            [len(each._backward_hooks or ()) for each in module.parameters()],
        )
        for name, module in model.named_modules()
    ]
