from __future__ import annotations

from pathlib import Path

import pytest

from contextual_dropout_lab.runs.run_data import Examples
from contextual_dropout_lab.store.results import Results
from tests.lab.report import records
from tests.lab.report.html import runs


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small test set under the name of MNIST; read only."""
    return runs.small_mnist(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def examples(data: Path) -> Examples:
    return runs.tested(data)


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory, examples: Examples) -> Results:
    """All methods with kept predictions, three seeds, both settings; read only."""
    root = records.results(tmp_path_factory.mktemp("kept"))
    runs.keep_all(root, examples)
    return root
