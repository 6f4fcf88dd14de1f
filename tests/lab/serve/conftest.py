from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from contextual_dropout_lab.cli.serve_command import find_beside
from contextual_dropout_lab.serve import LiveNetworks, create_app, load_live
from tests.lab.serve import trained


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on digits, with one of MC dropout beside it, where ``make demo`` puts them."""
    return trained.train_digits(tmp_path_factory.mktemp("digits") / "runs" / "demo")


@pytest.fixture(scope="session")
def live(digits: Path) -> LiveNetworks:
    return load_live(digits, find_beside(digits))


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> LiveNetworks:
    """Colour, 12 classes, and nothing random in it; nothing is beside it."""
    network = {"network": "wide_resnet", "network_options": {"depth": 10, "width": 1}, "normalisation": "cifar"}
    folder = tmp_path_factory.mktemp("photographs")
    classes = tuple(f"class {number}" for number in range(12))
    return load_live(trained.untrained(folder, (3, 32, 32), classes, data="cifar10", p=0.0, **network), None)


def client_of(networks: LiveNetworks, host: str = "127.0.0.1") -> TestClient:
    return TestClient(create_app(networks, host), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


@pytest.fixture(scope="session")
def client(live: LiveNetworks) -> TestClient:
    return client_of(live)
