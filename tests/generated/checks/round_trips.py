"""Converted and stripped, or saved and loaded, a network is what it was."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import contextual_dropout as cd
from tests.generated.case import Case, Wrong
from tests.generated.network import Network
from tests.reliability.memory import anatomy

__all__ = ["check_saving", "check_stripping"]


def check_stripping(case: Case) -> None:
    """A network that is converted and stripped has the modules, values and outputs of before, bit by bit.

    Raises:
        Wrong: it has not; or the conversion changed its outputs before any training.
    """
    network = case.network
    model = network.plain()
    parts, state, output = anatomy(model), _values(model), _output(network, model)
    network.contextualized(model)
    # Dropout in eval mode returns the very tensor that it was given, so that a write to one is a write to both.
    if "write input" not in network.ingredients():
        _compare("converted, the network's output in eval mode", _output(network, model), output, rounding=1e-4)
    cd.strip(model)
    if anatomy(model) != parts:
        raise Wrong("converted and stripped, the network has other modules, hooks or attributes")
    for name, value in _values(model).items():
        _compare(f"converted and stripped, {name}", value, state.pop(name))
    if state:
        raise Wrong(f"converted and stripped, the network lost {', '.join(state)}")
    _compare("converted and stripped, the network's output", _output(network, model), output)


def check_saving(case: Case, model: nn.Module) -> None:
    """Sites that are saved and loaded into a fresh network give it the outputs and keep probabilities of the saved one.

    Raises:
        Wrong: they do not.
    """
    network, fresh = case.network, case.network.plain()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sites.safetensors"
        cd.save_sites(model, path)
        if network.sites == "placed":
            with torch.no_grad():
                for site in cd.sites(fresh).values():
                    for parameter in site.parameters():
                        parameter.zero_()
        cd.load_sites(fresh, path)
    fresh.eval()
    _compare("saved and loaded, the network's output", _output(network, fresh), _output(network, model))
    kept, loaded = (_keep_probabilities(network, each) for each in (model, fresh))
    if kept.keys() != loaded.keys():
        raise Wrong(f"saved and loaded, the sites are {', '.join(loaded)} instead of {', '.join(kept)}")
    for name, value in kept.items():
        _compare(f"saved and loaded, the keep probabilities of {name}", loaded[name], value)


def _values(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@torch.no_grad()
def _output(network: Network, model: nn.Module) -> Tensor:
    """Of a copy, since a pass may change buffers, with the generators at their start."""
    return network.pick(network.fresh(model)(network.inputs()))


def _keep_probabilities(network: Network, model: nn.Module) -> dict[str, Any]:
    return cd.keep_probabilities(network.fresh(model), network.inputs())


def _compare(what: str, found: Tensor, expected: Tensor, rounding: float = 0.0) -> None:
    if found.shape != expected.shape:
        raise Wrong(f"{what} has the shape {tuple(found.shape)} instead of {tuple(expected.shape)}")
    if not torch.allclose(found, expected, rtol=rounding, atol=rounding, equal_nan=True):
        raise Wrong(f"{what} differs by {float((found - expected).abs().max()):.2g}")
