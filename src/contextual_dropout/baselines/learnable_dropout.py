"""Learnable Bernoulli dropout: a learned rate for every unit, but none for the sample (Boluki et al., 2020).

The same masks, prior, objective and estimators as contextual dropout, so that the two differ in context alone.
"""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from contextual_dropout.conversion.contextualize import contextualize

__all__ = ["learnable_dropout"]

Model = TypeVar("Model", bound=nn.Module)


def learnable_dropout(model: Model, p: float | None = None, **options: Any) -> Model:
    """The network with a learned rate per unit in the place of its dropout; train with ``cd.ELBO``.

    Args:
        model: a network with dropout layers.
        p: initial drop rate; that of each layer by default.
        options: of :func:`contextual_dropout.contextualize`.

    Example:
        >>> import torch
        >>> model = learnable_dropout(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3)))
        >>> keep = model[1].eval().keep_probability(torch.randn(5, 8))
        >>> bool((keep == keep[0]).all())
        True
    """
    return contextualize(model, p=p, encoder="global", **options)
