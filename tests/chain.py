"""A chain with dropout on channels and on units, and its keep probabilities by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import contextual_dropout as cd


def plain() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Dropout2d(0.3),
        nn.Flatten(),
        nn.Linear(144, 8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(8, 3),
    )


def images(examples: int = 5) -> Tensor:
    return torch.randn(examples, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def keeps(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The keep probabilities (B, C) of each site of a network as above, on the point estimate's path."""
    found = []
    for part in model.eval():
        if isinstance(part, cd.ContextualDropout):
            found.append(part.keep_probability(x).detach())
        x = part(x)
    return found
