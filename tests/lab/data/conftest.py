"""No test sees the machine's own data, cache or proxy unless it asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.data.files import real_data

REAL = real_data()  # before the variable is taken away


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, which does not exist yet."""
    monkeypatch.delenv("CONTEXTUAL_DROPOUT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "xdg" / "contextual-dropout"


@pytest.fixture
def real() -> Path:
    if REAL is None:
        pytest.skip("no real data: set CONTEXTUAL_DROPOUT_DATA")
    return REAL
