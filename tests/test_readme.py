"""The code in README.md and docs/ runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
BLOCKS = [
    (page.name, code)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("page", "code"), BLOCKS)
def test_block_runs(page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(code, page, "exec"), {"__name__": page})


def test_there_are_blocks() -> None:
    assert {"README.md", "converting.md"} <= {page for page, _ in BLOCKS}
