"""Trained networks on disk: parameters, and the configuration that builds the network for them."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.store.files import write_tensors

__all__ = ["input_shape", "load_network", "save_network"]

FILE = "model.safetensors"

#: The metadata keys of a run's network.
_METADATA = ("config", "shape", "classes")

#: Networks for inputs of more numbers are refused: 1 Mi, seven times an image of ImageNet.
MAX_INPUT = 2**20
#: A network is built of parts, some of which others replace: up to this many times its own parameters may be made.
SLACK = 8


def save_network(
    path: Path,
    model: nn.Module,
    config: RunConfig,
    shape: tuple[int, ...],
    classes: tuple[str, ...],
    dtype: torch.dtype | None = None,
) -> None:
    """Write a network, with the configuration in its metadata.

    Args:
        path: of the file, or the folder for ``model.safetensors``.
        model: the network.
        config: of its run.
        shape: of one input.
        classes: their names.
        dtype: of the numbers in the file, such as ``torch.float16`` for half its size; by default as they are.
    """
    metadata = {"config": json.dumps(config.to_dict()), "shape": json.dumps(shape), "classes": json.dumps(classes)}
    state = {
        name: value.to(dtype if value.is_floating_point() else None).contiguous()
        for name, value in model.state_dict().items()
    }
    write_tensors(_file(path), state, metadata)


def load_network(directory: Path) -> tuple[nn.Module, RunConfig, tuple[str, ...]]:
    """The network of a finished run in eval mode, its configuration and its classes.

    No code of the file is run, and no network is built that is larger than its tensors.

    Args:
        directory: of the run, or the file in it.

    Raises:
        ExperimentError: there is no such file, or it is not one of a network.
    """
    path = _file(directory)
    if not path.exists():
        raise ExperimentError(f"there is no trained network {path}: {_wanted(path)}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            missing = [key for key in _METADATA if key not in metadata]
            if missing:
                raise ValueError(f"it lacks the metadata {', '.join(missing)}: {_wanted(path)}")
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
        config, shape, classes = _described(metadata)
        with no_larger_than(state):
            model = build_model(config, shape, len(classes))
        model.load_state_dict(state)
    except Exception as error:  # building a network from a file's metadata may fail anywhere
        raise ExperimentError(f"{path} is not a network of a run of this version ({error})") from error
    return model.eval(), config, classes


def input_shape(directory: Path) -> tuple[int, ...]:
    """The shape of one input of the network that :func:`load_network` loads."""
    with safe_open(_file(directory), framework="pt") as file:
        return tuple(json.loads(file.metadata()["shape"]))


def _file(path: Path) -> Path:
    return path if path.suffix == ".safetensors" else path / FILE


def _wanted(path: Path) -> str:
    """The advice on what to give instead of a file that is missing, or not of a run."""
    wanted = "expected the folder of a finished run (contextual-dropout run, or make demo)"
    if (path.parent / "config.json").exists():
        return f"{wanted}; this folder is of a Hugging Face model, which cd.predict takes in Python once it is loaded"
    return wanted


def _described(metadata: dict[str, str]) -> tuple[RunConfig, tuple[int, ...], tuple[str, ...]]:
    """The metadata beside the tensors."""
    config, shape, classes = (json.loads(metadata[key]) for key in _METADATA)
    if not isinstance(shape, list) or not all(type(side) is int and side > 0 for side in shape):
        raise ValueError(f"its inputs have the shape {shape}: expected a list of positive numbers")
    if math.prod(shape) > MAX_INPUT:
        raise ValueError(f"its inputs have the shape {shape}: expected at most {MAX_INPUT} numbers")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ValueError("its classes are not a list of names")
    return RunConfig.from_dict(config), tuple(shape), tuple(classes)


@contextmanager
def no_larger_than(state: dict[str, Tensor]) -> Iterator[None]:
    """Refuse to build modules with far more, or far larger, parameters than these tensors.

    A layer makes its parameters before it fills them: memory that is asked for is not yet taken.
    """
    thread, count, elements = threading.get_ident(), 0, 0
    most, largest = SLACK * (len(state) + SLACK), SLACK * sum(tensor.numel() for tensor in state.values()) + MAX_INPUT

    def watch(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count, elements
        if threading.get_ident() != thread or parameter is None or is_lazy(parameter):
            return
        count, elements = count + 1, elements + parameter.numel()
        if count > most or elements > largest:
            raise ValueError(f"the network that it describes is larger than its {len(state)} tensors")

    handle = register_module_parameter_registration_hook(watch)
    try:
        yield
    finally:
        handle.remove()
