"""Files of networks that describe something else than they hold."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.store.networks import FILE, load_network, no_larger_than, save_network
from tests.lab.runs.tiny import tiny

CLASSES = tuple("0123456789")
VIT = {"side": 32, "patch": 4, "hidden": 8, "layers": 1, "heads": 2}


def write(folder: Path, **changes: Any) -> Path:
    """The network of a tiny run, with changes in what stands beside its tensors."""
    config = tiny()
    save_network(folder, build_model(config, (64,), 10), config, (64,), CLASSES)
    with safe_open(folder / FILE, framework="pt") as file:
        metadata = {key: json.loads(value) for key, value in file.metadata().items()}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata["config"] |= changes.pop("config", {})
    save_file(tensors, folder / FILE, {key: json.dumps(value) for key, value in (metadata | changes).items()})
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"hidden": [20_000, 20_000]}}, "larger than its"),
        ({"config": {"hidden": [4] * 3000}}, "larger than its"),
        ({"config": {"hidden": [10**12]}}, "not a network"),
        ({"config": {"network": "vit", "network_options": VIT | {"layers": 10**9}}, "shape": [3, 32, 32]}, "larger"),
        ({"config": {"network": "vit", "network_options": VIT | {"side": 10**5}}, "shape": [3, 32, 32]}, "larger"),
        ({"config": {"network": "wide_resnet", "network_options": {"width": 100}}, "shape": [3, 32, 32]}, "larger"),
        ({"classes": ["x"] * 10**5}, "larger than its"),
        ({"shape": [10**9]}, "expected at most 1048576 numbers"),
        ({"shape": [-64]}, "expected a list of positive numbers"),
        ({"shape": 64}, "expected a list of positive numbers"),
        ({"classes": 10}, "not a list of names"),
        ({"config": {"hidden": ["x"]}}, "hidden must be of type int"),
        ({"config": {"conversion": "none"}}, "unexpected keyword argument"),
        ({"config": {"setting": "../../up"}}, "setting must be a name without slashes"),
    ],
)
def test_a_network_that_is_not_in_the_file_is_not_built(tmp_path: Path, changes: Any, message: str) -> None:
    write(tmp_path, **changes)
    start = time.process_time()
    with pytest.raises(ExperimentError, match=message):
        load_network(tmp_path)
    assert time.process_time() - start < 5


def test_sound_files_are_read(tmp_path: Path) -> None:
    model, config, classes = load_network(write(tmp_path))
    assert (config, classes) == (tiny(), CLASSES)
    assert model(torch.zeros(2, 64)).shape == (2, 10)


def test_only_modules_of_the_same_thread_and_time_are_counted() -> None:
    small = {"weight": torch.zeros(2, 2)}
    with pytest.raises(ValueError, match="larger than its 1 tensors"), no_larger_than(small):
        nn.Linear(2000, 2000)
    nn.Linear(2000, 2000)


@pytest.mark.parametrize("file", ["model.safetensors", "model-00001-of-00002.safetensors"])
def test_a_folder_of_transformers_is_told_from_a_run(tmp_path: Path, file: str) -> None:
    """A network as ``save_pretrained`` writes it, whole or in parts."""
    save_file({"weight": torch.zeros(2)}, tmp_path / file, {"format": "pt"})
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ExperimentError) as error:
        load_network(tmp_path)
    said = str(error.value)
    assert ("lacks the metadata config, shape, classes" in said) == (file == "model.safetensors")
    assert "expected the folder of a finished run (contextual-dropout run, or make demo)" in said
    assert "of a Hugging Face model" in said
