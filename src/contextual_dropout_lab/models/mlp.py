"""The paper's multilayer perceptron."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

__all__ = ["mlp"]


def mlp(features: int = 784, hidden: Sequence[int] = (300, 100), classes: int = 10, p: float = 0.2) -> nn.Sequential:
    """Linear layers with ReLU between them and dropout in front of each, the input included.

    Args:
        features: of the flat input (B, features).
        hidden: sizes of the hidden layers.
        classes: logits.
        p: drop rate of the dropout layers.

    Example:
        >>> sum(parameter.numel() for parameter in mlp().parameters())  # the paper's 267K
        266610
    """
    sizes = [features, *hidden]
    layers: list[nn.Module] = []
    for before, after in zip(sizes, hidden, strict=False):
        layers += [nn.Dropout(p), nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(p), nn.Linear(sizes[-1], classes))
