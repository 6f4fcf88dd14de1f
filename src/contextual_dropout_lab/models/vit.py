"""A small vision transformer (Dosovitskiy et al. 2021) for images of one size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contextual_dropout.nn.sequence_dropout import SequenceDropout
from contextual_dropout_lab.models.layers import check_drop_rate, check_size
from contextual_dropout_lab.models.transformer import SelfAttention

__all__ = ["ViT", "vit"]


class ViT(nn.Module):
    """See :func:`vit`, which builds it."""

    def __init__(
        self, classes: int, p: float, *, channels: int, side: int, patch: int, hidden: int, heads: int, layers: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, hidden, patch, stride=patch)
        self.positions = nn.Parameter(torch.empty(1, (side // patch) ** 2, hidden))
        nn.init.normal_(self.positions, std=0.02)
        self.dropout = SequenceDropout(p)
        self.layers = nn.ModuleList(SelfAttention(hidden, heads, p) for _ in range(layers))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, channels, side, side)."""
        tokens: Tensor = self.patches(x).flatten(2).mT + self.positions  # (B, N, hidden)
        tokens = self.dropout(tokens)
        for layer in self.layers:
            tokens = layer(tokens)
        logits: Tensor = self.head(tokens.mean(1))
        return logits


def vit(
    classes: int = 10,
    p: float = 0.1,
    *,
    channels: int = 1,
    side: int = 28,
    patch: int = 7,
    hidden: int = 64,
    heads: int = 4,
    layers: int = 2,
) -> ViT:
    """A vision transformer with dropout in 4 L + 1 places; the last tokens are averaged for the classes.

    Args:
        classes: logits.
        p: drop rate of all dropout layers.
        channels: of the images.
        side: pixels of the images' sides.
        patch: pixels of a patch's sides; must divide ``side``.
        hidden: channels of a token.
        heads: of attention; must divide ``hidden``.
        layers: L.

    Shape:
        (B, channels, side, side) to (B, classes).

    Example:
        >>> vit()(torch.rand(2, 1, 28, 28)).shape
        torch.Size([2, 10])
        >>> sum(isinstance(module, nn.Dropout) for module in vit(layers=3).modules())
        13
    """
    check_drop_rate(p)
    sizes = {"channels": channels, "side": side, "patch": patch, "hidden": hidden, "heads": heads, "layers": layers}
    for name, value in {"classes": classes, **sizes}.items():
        check_size(name, value)
    if side % patch or hidden % heads:
        raise ValueError(f"patch must divide side and heads must divide hidden, got {sizes}")
    return ViT(classes, p, **sizes)
