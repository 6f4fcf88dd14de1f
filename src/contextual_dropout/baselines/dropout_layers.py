"""Putting another layer in the place of each dropout layer of a network."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.conversion.contextualize import like
from contextual_dropout.conversion.selection import Selector, matcher

__all__ = ["replace_dropout", "shared_axes", "unit_shape"]

Model = TypeVar("Model", bound=nn.Module)

#: The number of trailing axes of the input that share one random number, for each kind of dropout layer.
_SHARED_AXES: dict[type[nn.Module], int] = {
    nn.Dropout1d: 1,
    nn.Dropout2d: 2,
    nn.Dropout3d: 3,
    nn.FeatureAlphaDropout: 2,
}


def replace_dropout(
    model: Model, make: Callable[[_DropoutNd], nn.Module], *, exclude: Selector | None = None, inplace: bool = True
) -> Model:
    """The model with ``make(layer)`` in the place of each ``nn.Dropout``, ``Dropout1d/2d/3d`` or ``AlphaDropout``.

    Args:
        model: any network with dropout layers; they say where, and how parts of a feature map share a mask.
        make: builds the new layer.
        exclude: dropout layers to leave alone, by type, name, regular expression or predicate.
        inplace: change the model itself, or a copy.
    """
    model = model if inplace else copy.deepcopy(model)
    excluded = matcher(exclude)
    found: dict[str, _DropoutNd] = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, _DropoutNd) and not excluded(name, module)
    }
    if not found or "" in found:
        raise ValueError(
            "the model has no dropout layers inside, and the method acts in their place: put nn.Dropout(p) "
            "layers where it is to act (nn.Dropout2d for whole channels)"
        )
    made = {module: like(make(module), model).train(module.training) for module in dict.fromkeys(found.values())}
    for name, module in found.items():
        model.set_submodule(name, made[module])
    return model


def shared_axes(layer: nn.Module) -> int:
    """The number of trailing axes that share one random number in a dropout layer of this kind."""
    return _SHARED_AXES.get(type(layer), 0)


def unit_shape(u: Tensor, shared: int) -> tuple[int, ...]:
    """The shape of a mask for ``u`` whose last ``shared`` axes have one entry.

    Example:
        >>> import torch
        >>> unit_shape(torch.zeros(8, 3, 5, 5), 2)
        (8, 3, 1, 1)
    """
    return (*u.shape[: u.ndim - shared], *([1] * shared))
