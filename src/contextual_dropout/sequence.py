"""Dropout on the features of padded sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contextual_dropout.site import ContextualDropout

__all__ = ["SequenceDropout", "pooled_positions"]


def pooled_positions(u: Tensor, padded: Tensor | None = None) -> Tensor:
    """The mean over the positions that are no padding.

    Args:
        u: (B, N, C).
        padded: (B, N), True where there is padding.

    Returns:
        (B, C), in single precision at least; 0 where everything is padding.

    Example:
        >>> pooled_positions(torch.tensor([[[1.0], [2.0], [30.0]]]), torch.tensor([[False, False, True]]))
        tensor([[1.5000]])
    """
    precise = torch.promote_types(u.dtype, torch.float32)  # sums are soon beyond what float16 has
    if padded is None:
        return u.mean(1, dtype=precise)
    counted = (~padded).unsqueeze(-1)
    return u.masked_fill(~counted, 0).sum(1, dtype=precise) / counted.sum(1).clamp_min(1)


class SequenceDropout(nn.Module):
    """Dropout on features (B, N, C) of sequences with padding: the place where a site belongs.

    Plain, it is an ``nn.Dropout``. A site that ``cd.contextualize`` puts in the place of that has one keep probability
    for each channel, and its context is the mean over the positions that are no padding.

    Args:
        p: drop rate.

    Shape:
        Input and output (B, N, C), padding (B, N).
    """

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.dropout: nn.Module = nn.Dropout(p)

    def forward(self, u: Tensor, padded: Tensor | None = None) -> Tensor:
        """The features under dropout."""
        if isinstance(self.dropout, ContextualDropout):
            masked: Tensor = self.dropout(u, context=pooled_positions(u, padded))
            return masked
        dropped: Tensor = self.dropout(u)
        return dropped
