"""The networks in the repository: one of each method of noisy MNIST, as they were trained, and readable."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from contextual_dropout_lab.runs.config import load_experiment
from contextual_dropout_lab.store.networks import input_shape, load_network

FOLDER = Path(__file__).parents[3] / "experiments" / "networks"
SUMS = dict(reversed(line.split("  ")) for line in (FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines())


def test_there_is_one_of_each_method() -> None:
    methods = {config.method for config in load_experiment("mnist").runs("paper") if config.setting == "noisy"}
    assert set(SUMS) == {f"mnist/noisy/{method}/seed-0.safetensors" for method in methods}
    assert sum((FOLDER / name).stat().st_size for name in SUMS) < 10e6


@pytest.mark.parametrize("name", SUMS)
def test_it_is_the_network_of_its_record(name: str) -> None:
    path = FOLDER / name
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SUMS[name]
    _, config, classes = load_network(path)
    record = FOLDER.parent / "results" / Path(name).with_suffix(".json")
    assert config.digest == json.loads(record.read_text(encoding="utf-8"))["digest"]
    assert (input_shape(path), len(classes)) == ((784,), 10)
