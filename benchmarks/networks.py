"""The networks that the benchmarks time, plain or with contextual sites in the places of the dropout."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd

#: Makes the dropout layer for so many features.
Dropout = Callable[[int], nn.Module]


def contextual(family: str, dim: int = -1, reduction: int = 10) -> Dropout:
    return lambda features: cd.ContextualDropout(features, 0.2, family=family, dim=dim, reduction=reduction)  # type: ignore[arg-type]


def plain(features: int) -> nn.Module:
    return nn.Dropout(0.2)


def mlp(dropout: Dropout) -> nn.Module:
    """The paper's 784-300-100-10, dropout on the input of each of the three layers."""
    return nn.Sequential(
        dropout(784),
        nn.Linear(784, 300),
        nn.ReLU(),
        dropout(300),
        nn.Linear(300, 100),
        nn.ReLU(),
        dropout(100),
        nn.Linear(100, 10),
    )


class Block(nn.Module):
    """A pre-activation residual block with dropout after its first convolution, as in the paper's WRN."""

    def __init__(self, width: int, dropout: Dropout) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.dropout = dropout(width)

    def forward(self, x: Tensor) -> Tensor:
        u = self.dropout(self.conv1(F.relu(self.norm1(x))))
        out: Tensor = x + self.conv2(F.relu(self.norm2(u)))
        return out


def residual_cnn(dropout: Dropout, blocks: int = 12, width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        *(Block(width, dropout) for _ in range(blocks)),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )
