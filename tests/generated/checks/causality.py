"""No output of a network with sites depends on an input that the plain network's output does not depend on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.generated.case import Case, Wrong
from tests.generated.network import Network

__all__ = ["check_causality", "dependencies"]


def check_causality(case: Case, plain: nn.Module, model: nn.Module) -> None:
    """Compares which inputs move which outputs.

    A site of its own for each position may not add any dependence; nor any site between rows; and sites that pool over
    positions may not let the past depend on the future where it did not before.

    Raises:
        Wrong: there is a dependence that the plain network does not have.
    """
    network = case.network
    allowed, found = dependencies(network, plain) > 0, dependencies(network, model) > 1e-5  # (B, T, B, T)
    _refuse("row", found.any(1).any(2) & ~allowed.any(1).any(2))
    positions, plain_positions = found.any(0).any(1), allowed.any(0).any(1)  # (T, T)
    backwards = torch.ones_like(positions).tril(-1)  # a later input, an earlier output
    if network.positions == "own":
        _refuse("position", positions & ~plain_positions)
    elif network.positions is None and not (plain_positions & backwards).any():
        _refuse("position", positions & backwards)


def _refuse(kind: str, new: Tensor) -> None:
    if new.any():
        source, target = (int(index) for index in new.nonzero()[0])
        raise Wrong(f"causality: output {kind} {target} depends on input {kind} {source}, which it did not before")


@torch.no_grad()
def dependencies(network: Network, model: nn.Module) -> Tensor:
    """How far each input (row and position) moves each output, in eval mode: (B, T, B, T)."""
    x = network.inputs()
    base = _outputs(network, model, x)
    batch, length = x.shape[0], network.length or 1
    moved = torch.zeros(batch, length, batch, length)
    for row in range(batch):
        for position in range(length):
            for stream in (2, 3):  # another vector: layer normalisation does not see a number that is added to all
                changed, other = x.clone(), network.inputs(stream)
                place = row if network.length is None else (row, position)
                changed[place] = other[place]
                change = (_outputs(network, model, changed) - base).abs().nan_to_num(nan=1.0).amax(-1)
                moved[row, position] = torch.maximum(moved[row, position], change)
    return moved


def _outputs(network: Network, model: nn.Module, x: Tensor) -> Tensor:
    """The outputs of one pass, (B, T, F), of a copy whose generators are at their start."""
    out = network.pick(network.fresh(model)(x.clone()))
    return out.unsqueeze(1) if network.length is None else out  # (B, T, F)
