"""Contextual gating: the encoder's output scales the features, nothing is sampled (the paper's ablation)."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.baselines.dropout_layers import replace_dropout, shared_axes
from contextual_dropout.nn.encoder import LAZY_ENCODERS, Encoder, Initialisation, pool

__all__ = ["ContextualGate", "contextual_gating", "gated_dropout"]

Model = TypeVar("Model", bound=nn.Module)


class ContextualGate(nn.Module):
    """``x = u * sigmoid(t h(u))``: the point estimate of a Bernoulli site, trained by ordinary backpropagation.

    Gradients flow through the encoder into the network, as in a squeeze-and-excitation block.

    Args:
        p: the gates start at 1 - p.
        reduction: gamma of the encoder.
        temperature: t.
        dim: the axis that gets gates; by default, as for a site, the second of an input with four axes or more, else
            the last.
        initialisation: of the encoder, ``"he"`` or ``"zero"``.

    Shape:
        Input and output (B, ...), with the features on axis ``dim``; their number is inferred from the first.
    """

    encoder: Encoder

    def __init__(
        self,
        p: float = 0.2,
        *,
        reduction: int = 8,
        temperature: float = 0.01,
        dim: int | None = None,
        initialisation: Initialisation = "he",
    ) -> None:
        super().__init__()
        if not 0 < p < 1:
            raise ValueError(f"p must be strictly between 0 and 1: the gates start at 1 - p, got {p}")
        self.dim = dim
        self.encoder = LAZY_ENCODERS["bottleneck"](
            reduction=reduction,
            temperature=temperature,
            initial_logit=math.log1p(-p) - math.log(p),
            initialisation=initialisation,
        )

    def forward(self, u: Tensor) -> Tensor:
        dim = (1 if u.ndim >= 4 else -1) if self.dim is None else self.dim
        gates: Tensor = self.encoder(pool(u, (0,), dim)).sigmoid()  # (B, C)
        axes = (0, dim % u.ndim)
        return u * gates.reshape([size if axis in axes else 1 for axis, size in enumerate(u.shape)])


def contextual_gating(
    model: Model, p: float | None = None, *, exclude: Any = None, inplace: bool = True, **options: Any
) -> Model:
    """The network with a gate in the place of each dropout layer. It is deterministic: predict with ``samples=1``.

    Args:
        model: a network with dropout layers.
        p: the gates start at 1 - p; p is that of each layer by default.
        exclude: dropout layers to leave alone.
        inplace: change the model itself, or a copy.
        options: of :class:`ContextualGate`.

    Example:
        >>> model = contextual_gating(nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 3)))
        >>> type(model[0]).__name__
        'ContextualGate'
    """
    return replace_dropout(model, lambda layer: _gate(layer, p, options), exclude=exclude, inplace=inplace)


def gated_dropout(
    model: Model,
    p: float | None = None,
    *,
    drop: float | None = None,
    exclude: Any = None,
    inplace: bool = True,
    **options: Any,
) -> Model:
    """The network with a gate in front of each dropout layer, which keeps its own rate (or takes ``drop``).

    Args:
        model: a network with dropout layers.
        p: the gates start at 1 - p; p is that of each layer by default.
        drop: drop rate of the dropout behind the gates; that of each layer by default.
        exclude: dropout layers to leave alone.
        inplace: change the model itself, or a copy.
        options: of :class:`ContextualGate`.

    Example:
        >>> [type(part).__name__ for part in gated_dropout(nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 3)))[0]]
        ['ContextualGate', 'Dropout']
    """

    def make(layer: _DropoutNd) -> nn.Module:
        return nn.Sequential(_gate(layer, p, options), type(layer)(layer.p if drop is None else drop))

    return replace_dropout(model, make, exclude=exclude, inplace=inplace)


def _gate(layer: _DropoutNd, p: float | None, options: dict[str, Any]) -> ContextualGate:
    shared = shared_axes(layer)
    axis = {"dim": -1 - shared if shared else None}
    return ContextualGate(layer.p if p is None else p, **(axis | options))
