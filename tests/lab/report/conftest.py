from __future__ import annotations

from pathlib import Path

import pytest

from contextual_dropout_lab.store.results import Results
from tests.lab.report import records


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return records.results(tmp_path)


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All methods, three seeds, both settings; read only."""
    root = records.results(tmp_path_factory.mktemp("complete"))
    records.write_all(root)
    return root
