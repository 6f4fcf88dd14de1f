"""Dropout on the features of padded sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contextual_dropout.nn.encoder import Pooling
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["SequenceDropout", "has_own_positions", "pooled_positions"]


def has_own_positions(site: ContextualDropout) -> bool:
    """Whether each position of a sample has logits of its own, from its own features, so that nothing is pooled."""
    return len(site.batch_dims) > 1 or getattr(site, "_positions_are_open", False)


def pooled_positions(u: Tensor, padded: Tensor | None = None, pooling: Pooling = "mean") -> Tensor:
    """The mean over the positions that are not padding.

    Args:
        u: (B, N, C).
        padded: (B, N), True where there is padding.
        pooling: ``"mean-deviation"`` puts the mean absolute deviation from the mean behind it.

    Returns:
        (B, C) or (B, 2 C), in single precision at least; 0 where everything is padding.

    Example:
        >>> pooled_positions(torch.tensor([[[1.0], [2.0], [30.0]]]), torch.tensor([[False, False, True]]))
        tensor([[1.5000]])
    """
    mean = _mean(u, padded)
    if pooling == "mean":
        return mean
    return torch.cat([mean, _mean((u - mean.unsqueeze(1)).abs(), padded)], -1)


def _mean(u: Tensor, padded: Tensor | None) -> Tensor:
    precise = torch.promote_types(u.dtype, torch.float32)  # sums soon exceed the range of float16
    if padded is None:
        return u.mean(1, dtype=precise)
    counted = (~padded).unsqueeze(-1)
    return u.masked_fill(~counted, 0).sum(1, dtype=precise) / counted.sum(1).clamp_min(1)


class SequenceDropout(nn.Module):
    """Dropout on features (B, N, C) of sequences with padding; ``cd.contextualize`` puts a site here.

    By itself it is an ``nn.Dropout``. The site that replaces it has one keep probability for each channel, and its
    context is the mean over the positions that are not padding. A position-wise site reads each position alone.

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
            site = self.dropout
            context = None if has_own_positions(site) else pooled_positions(u, padded, site.pooling)
            masked: Tensor = site(u, context=context)
            return masked
        dropped: Tensor = self.dropout(u)
        return dropped
