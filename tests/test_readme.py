"""The code in README.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS)
def test_block_runs(code: str) -> None:
    torch.manual_seed(0)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_there_are_blocks() -> None:
    assert BLOCKS
