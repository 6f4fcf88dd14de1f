"""Blocks of attention networks, whose dropout layers take padding into account."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contextual_dropout.nn.attention_dropout import AttentionDropout
from contextual_dropout.nn.sequence_dropout import SequenceDropout

__all__ = ["Attention", "FeedForward", "Residual", "SelfAttention"]

#: (B, N), True where there is padding; None if there is none anywhere.
Padding = Tensor | None


class Attention(nn.Module):
    """Multi-head attention, ``softmax(Q K' / sqrt(d)) V`` for each head.

    Shape:
        Queries (B, N_Q, C), keys and values (B, N_K, C); padding (B, N), True where there is padding.
    """

    def __init__(self, hidden: int, heads: int, p: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.merge = (nn.Linear(hidden, hidden) for _ in range(4))
        self.dropout = AttentionDropout(p)

    def forward(self, x: Tensor, memory: Tensor, padded: Padding, memory_padded: Padding) -> Tensor:
        """The result of ``x`` attending to ``memory``, (B, N_Q, C)."""
        q, k, v = (self._heads(part) for part in (self.query(x), self.key(memory), self.value(memory)))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if memory_padded is not None:
            scores = scores.masked_fill(memory_padded[:, None, None, :], torch.finfo(scores.dtype).min)
        weights = self.dropout(scores.softmax(-1), scores, q, padded)
        merged: Tensor = self.merge((weights @ v).transpose(1, 2).flatten(2))
        return merged

    def _heads(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, self.heads, -1).transpose(1, 2)  # (B, H, N, d)


class FeedForward(nn.Module):
    """Two linear layers, the first four times as wide."""

    def __init__(self, hidden: int, p: float) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = SequenceDropout(p)

    def forward(self, x: Tensor, padded: Padding = None) -> Tensor:
        narrowed: Tensor = self.narrow(self.dropout(F.relu(self.widen(x)), padded))
        return narrowed


class Residual(nn.Module):
    """``LayerNorm(x + dropout(update))``."""

    def __init__(self, hidden: int, p: float) -> None:
        super().__init__()
        self.dropout = SequenceDropout(p)
        self.norm = nn.LayerNorm(hidden, eps=1e-6)

    def forward(self, x: Tensor, update: Tensor, padded: Padding = None) -> Tensor:
        normed: Tensor = self.norm(x + self.dropout(update, padded))
        return normed


class SelfAttention(nn.Module):
    """A sequence attends to itself: four dropout layers."""

    def __init__(self, hidden: int, heads: int, p: float) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(hidden, heads, p), FeedForward(hidden, p)
        self.after_attention, self.after_feed_forward = Residual(hidden, p), Residual(hidden, p)

    def forward(self, x: Tensor, padded: Padding = None) -> Tensor:
        x = self.after_attention(x, self.attention(x, x, padded, padded), padded)
        out: Tensor = self.after_feed_forward(x, self.feed_forward(x, padded), padded)
        return out
