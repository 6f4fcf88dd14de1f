from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from contextual_dropout.baselines.dropout_layers import replace_dropout, shared_axes, unit_shape

#: A dropout layer of each kind and an input for it.
KINDS = [
    (nn.Dropout(0.5), (40, 6)),
    (nn.Dropout(0.5), (40, 6, 5)),
    (nn.Dropout1d(0.5), (40, 6, 5)),
    (nn.Dropout2d(0.5), (40, 6, 5, 4)),
    (nn.Dropout3d(0.5), (40, 6, 5, 4, 3)),
]


class Marker(nn.Module):
    """Stands where a dropout layer was."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, u: Tensor) -> Tensor:
        return u


@pytest.mark.parametrize(("layer", "shape"), KINDS)
def test_axes_are_shared_as_in_torch(layer: nn.Module, shape: tuple[int, ...]) -> None:
    mask = unit_shape(torch.empty(shape), shared_axes(layer))
    zero = layer(torch.ones(shape)) == 0
    shared = [axis for axis, size in enumerate(shape) if torch.equal(zero, zero.narrow(axis, 0, 1).expand(shape))]
    assert [axis for axis, size in enumerate(mask) if size == 1] == shared


def test_every_kind_is_replaced_and_nothing_else() -> None:
    layers = [nn.Dropout(), nn.Dropout1d(), nn.Dropout2d(), nn.Dropout3d(), nn.AlphaDropout(), nn.FeatureAlphaDropout()]
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(*layers), nn.ReLU())
    seen: list[nn.Module] = []

    def make(layer: nn.Module) -> nn.Module:
        seen.append(layer)
        return Marker()

    replace_dropout(model, make)
    assert seen == layers
    assert [type(part) for part in model[1]] == [Marker] * len(layers)
    assert [type(part) for part in model] == [nn.Linear, nn.Sequential, nn.ReLU]


def test_a_shared_layer_stays_shared() -> None:
    dropout = nn.Dropout(0.3)
    model = nn.ModuleDict({"a": dropout, "b": nn.Sequential(dropout), "c": nn.Dropout(0.3)})
    replace_dropout(model, lambda layer: Marker())
    assert model["a"] is model["b"][0]  # type: ignore[index]
    assert model["a"] is not model["c"]


def test_exclude_leaves_layers_alone() -> None:
    model = nn.ModuleDict({"keep": nn.Dropout(0.3), "change": nn.Dropout(0.3)})
    replace_dropout(model, lambda layer: Marker(), exclude="keep")
    assert isinstance(model["keep"], nn.Dropout)
    assert isinstance(model["change"], Marker)
    with pytest.raises(ValueError, match="no dropout layers"):
        replace_dropout(model, lambda layer: Marker(), exclude=nn.Dropout)


def test_mode_and_precision_are_taken_over() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Dropout()).double()
    model[2].eval()
    replace_dropout(model, lambda layer: Marker())
    assert [part.training for part in model] == [True, True, False]
    assert model[1].weight.dtype is torch.float64


def test_a_dropout_layer_alone_is_an_error() -> None:
    with pytest.raises(ValueError, match="no dropout layers inside"):
        replace_dropout(nn.Dropout(), lambda layer: Marker())
