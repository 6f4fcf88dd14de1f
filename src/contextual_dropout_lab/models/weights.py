"""Load weights, and nothing but weights, from a file into a network: no file is ever executed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load_file
from torch import Tensor, nn

from contextual_dropout._torch_files import read_torch

__all__ = ["load_weights"]

Model = TypeVar("Model", bound=nn.Module)
#: Counters that torch adds itself to state dicts of before 2018, among them torchvision's ResNet-18.
COUNTER = "num_batches_tracked"
#: How many entries an error names.
NAMED = 10


def load_weights(model: Model, path: str | os.PathLike[str], *, skip: str | Iterable[str] = ()) -> Model:
    """Fill a network with the weights of a file: all of them, or an error and the network as before.

    Load first and ``cd.contextualize`` afterwards: sites are not in such files (see ``cd.load_sites``).

    Args:
        model: any plain network; it stays on its device and in its precision.
        path: of a state dict, ``.safetensors``, ``.pth`` or ``.pt``. The latter two are read with
            ``torch.load(weights_only=True)``, which builds tensors and refuses anything else.
        skip: modules or entries that keep the network's own values, whatever the file has for them: ``("fc",)`` for
            another number of classes.

    Returns:
        The network, changed in place.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a state dict, has missing, unexpected or differently shaped entries (named), or
            ``skip`` names nothing in the network.

    Example:
        >>> import tempfile, torch
        >>> from contextual_dropout_lab.models import mlp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save(mlp(4, (8,), classes=10).state_dict(), f"{folder}/ten.pth")
        ...     model = load_weights(mlp(4, (8,), classes=3), f"{folder}/ten.pth", skip=("4",))
        ...     load_weights(mlp(4, (8,), classes=3), f"{folder}/ten.pth")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        ValueError: ... does not fit the network:
    """
    parts = (skip,) if isinstance(skip, str) else tuple(skip)
    here: dict[str, Tensor] = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    for part in parts:
        if not any(_inside(name, part) for name in here):
            raise ValueError(f"skip names {part!r}, but the network has no such part: {_some(_tops(here))}")
    if any(value.is_meta for value in here.values()):
        raise ValueError(
            "the network is on the meta device and has no memory for weights: model.to_empty(device='cpu')"
        )
    there = _read(Path(path))
    kept = {name for name in here.keys() | there.keys() if any(_inside(name, part) for part in parts)}
    state = {name: value for name, value in there.items() if name not in kept}
    problems = _misfits({name: value for name, value in here.items() if name not in kept}, state)
    if problems:
        raise ValueError("\n  ".join([f"{path} does not fit the network:", *_first(problems)]))
    model.load_state_dict(state, strict=False)  # the comparison above was strict
    return model


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, on the CPU."""
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise ValueError(f"{path} should be a state dict, in a file that ends in .safetensors, .pth or .pt")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of weights {path}")
    try:
        content: Any = load_file(path) if path.suffix == ".safetensors" else read_torch(path)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is damaged, or holds objects other than tensors, which could execute code and are refused: save "
            f"model.state_dict(), best as .safetensors ({_line(error)})"
        ) from error
    except Exception as error:  # a damaged file can make torch raise anything
        raise ValueError(f"{path} is damaged, or not a {path.suffix} file: {_line(error)}") from error
    problem = _no_state_dict(content)
    if problem:
        raise ValueError(f"{path} {problem}")
    state: dict[str, Tensor] = content
    return state


def _no_state_dict(content: Any) -> str | None:
    """The reason for which it is not a state dict; None if it is one."""
    if not isinstance(content, dict):
        return f"holds a {type(content).__name__} instead of a state dict"
    if not all(isinstance(name, str) for name in content):
        return "holds entries whose names are not strings, instead of a state dict"
    if not content:
        return "is not a state dict: it has no tensors"
    others = [name for name, value in content.items() if not isinstance(value, Tensor)]
    if others:
        return f"is not a state dict: {_some(others)} {'are not tensors' if len(others) > 1 else 'is not a tensor'}"
    return None


def _misfits(here: dict[str, Tensor], there: dict[str, Tensor]) -> list[str]:
    missing = [name for name in here if name not in there and name.rpartition(".")[2] != COUNTER]
    problems = [f"{name}: in the network but not in the file" for name in missing]
    problems += [f"{name}: in the file but not in the network" for name in there if name not in here]
    for name in (name for name in here if name in there):
        ours, theirs = here[name], there[name]
        if ours.shape != theirs.shape:
            problems.append(f"{name}: shape {tuple(ours.shape)} in the network, {tuple(theirs.shape)} in the file")
        elif theirs.is_floating_point() != ours.is_floating_point() or theirs.layout != ours.layout or theirs.is_meta:
            problems.append(f"{name}: {_kind(ours)} in the network, {_kind(theirs)} in the file")
    return problems


def _kind(value: Tensor) -> str:
    return f"{value.dtype}, {value.layout} on {value.device}"


def _inside(name: str, part: str) -> bool:
    """Whether an entry is a part of the network or belongs to it."""
    return name == part or name.startswith(f"{part}.")


def _tops(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _first(lines: list[str]) -> list[str]:
    return lines[:NAMED] + [f"... and {len(lines) - NAMED} more"] * (len(lines) > NAMED)


def _some(names: list[str]) -> str:
    return ", ".join(_first(names))


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
