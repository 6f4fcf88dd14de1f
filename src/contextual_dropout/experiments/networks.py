"""Trained networks on disk: parameters, and the configuration that builds the network for them."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.errors import ExperimentError
from contextual_dropout.experiments.files import replace_file
from contextual_dropout.experiments.methods import build_model

__all__ = ["load_network", "save_network"]

FILE = "model.safetensors"


def save_network(
    directory: Path, model: nn.Module, config: RunConfig, shape: tuple[int, ...], classes: tuple[str, ...]
) -> None:
    """Write ``model.safetensors``, with the configuration in its metadata."""
    metadata = {"config": json.dumps(config.to_dict()), "shape": json.dumps(shape), "classes": json.dumps(classes)}
    with replace_file(directory / FILE) as temporary:
        save_file({name: value.contiguous() for name, value in model.state_dict().items()}, temporary, metadata)


def load_network(directory: Path) -> tuple[nn.Module, RunConfig, tuple[str, ...]]:
    """The network of a finished run in eval mode, its configuration and its classes.

    Args:
        directory: of the run, or the file in it.
    """
    path = directory if directory.suffix == ".safetensors" else directory / FILE
    if not path.exists():
        raise ExperimentError(f"there is no trained network {path}: finish the run first (contextual-dropout run)")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
        config = RunConfig.from_dict(json.loads(metadata["config"]))
        classes = tuple(json.loads(metadata["classes"]))
        model = build_model(config, tuple(json.loads(metadata["shape"])), len(classes))
        model.load_state_dict(state)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise ExperimentError(f"{path} is not a network of a run of this version ({error})") from error
    return model.eval(), config, classes
