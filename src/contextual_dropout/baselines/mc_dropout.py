"""MC dropout: ordinary dropout that also samples when the network predicts (Gal and Ghahramani, 2016)."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.baselines.dropout_layers import replace_dropout

__all__ = ["mc_dropout"]

Model = TypeVar("Model", bound=nn.Module)


def mc_dropout(model: Model, p: float | None = None, **options: Any) -> Model:
    """The network with all its dropout layers at drop rate ``p``; :func:`contextual_dropout.predict` samples them.

    Args:
        model: a network with dropout layers.
        p: their drop rate; each keeps its own by default.
        options: ``exclude``, ``inplace``.

    Example:
        >>> mc_dropout(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1)), p=0.5)
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
          (1): Dropout(p=0.5, inplace=False)
        )
    """

    def make(layer: _DropoutNd) -> nn.Module:
        return type(layer)(layer.p if p is None else p, layer.inplace)

    return replace_dropout(model, make, **options)
