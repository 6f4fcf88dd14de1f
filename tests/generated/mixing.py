"""Blocks that mix positions or rows: attention, recurrence, convolution, graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tests.generated.plan import WIDTH, Block, Plan

__all__ = ["Attention", "Convolution", "Recurrent", "Rows"]

HEADS = 2


@dataclass(frozen=True)
class Attention(Block):
    """Self-attention: by hand, torch's module, a layer of its encoder, with heads folded into the batch, or fused."""

    p: float
    kind: Literal["hand", "module", "encoder", "folded", "fused"] = "hand"
    causal: bool = False
    padded: bool = False

    def build(self, plan: Plan) -> nn.Module:
        if self.kind == "module":
            inner: nn.Module = nn.MultiheadAttention(WIDTH, HEADS, self.p, batch_first=True)
        elif self.kind == "encoder":
            inner = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, self.p, batch_first=True)
        elif self.kind == "fused":
            inner = _Fused(self.p)
        else:
            by_hand = plan.placed and self.kind == "hand"
            own = (0, 2) if self.causal else 0
            dropout = plan.site(HEADS, self.p, dim=1, batch_dim=own) if by_hand else nn.Dropout(self.p)
            inner = _Heads(dropout, self.kind == "folded")
        return _Attention(inner, self.causal, self.padded)

    def ingredients(self) -> tuple[str, ...]:  # type: ignore[override]
        masks = (*(["causal mask"] if self.causal else []), *(["padding mask"] if self.padded else []))
        return (f"attention {self.kind}", *masks)


class _Attention(nn.Module):
    def __init__(self, inner: nn.Module, causal: bool, padded: bool) -> None:
        super().__init__()
        self.inner, self.causal, self.padded = inner, causal, padded

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        future = torch.ones(length, length, dtype=torch.bool).triu(1) if self.causal else None
        rows, last = torch.arange(batch) % 2 == 1, torch.arange(length) == length - 1
        padding = rows[:, None] & last if self.padded and length > 1 else None
        if isinstance(self.inner, nn.MultiheadAttention):
            out, _ = self.inner(x, x, x, key_padding_mask=padding, attn_mask=future, need_weights=False)
        elif isinstance(self.inner, nn.TransformerEncoderLayer):
            out = self.inner(x, src_mask=future, src_key_padding_mask=padding)
        else:
            out = self.inner(x, future, padding)
        result: Tensor = out
        return result


class _Fused(nn.Module):
    """Attention by torch's function, whose rate depends on the training flag."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.project = p, nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor, future: Tensor | None, padding: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.project(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        hidden = torch.zeros(batch, 1, length, length, dtype=torch.bool)
        hidden = hidden if future is None else hidden | future
        hidden = hidden if padding is None else hidden | padding[:, None, None, :]
        out = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=~hidden, dropout_p=self.p if self.training else 0.0
        )
        return out.transpose(1, 2).flatten(2)


class _Heads(nn.Module):
    """Attention as people write it, with dropout on its weights (B, H, T, T), or (B H, T, T)."""

    def __init__(self, dropout: nn.Module, folded: bool) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.dropout, self.folded = dropout, folded

    def forward(self, x: Tensor, future: Tensor | None, padding: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        parts = self.project(x).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # (B, H, T, D / H) each
        scores = q @ k.mT / math.sqrt(WIDTH // HEADS)
        if future is not None:
            scores = scores.masked_fill(future, -math.inf)
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None, :], -math.inf)
        weights = scores.softmax(-1)
        weights = weights.flatten(0, 1) if self.folded else weights
        dropped = self.dropout(weights).view(scores.shape)
        return (dropped @ v).transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class Recurrent(Block):
    p: float
    kind: Literal["GRU", "LSTM", "RNN"] = "GRU"

    def build(self, plan: Plan) -> nn.Module:
        layer = {"GRU": nn.GRU, "LSTM": nn.LSTM, "RNN": nn.RNN}[self.kind]
        return _Recurrent(layer(WIDTH, WIDTH, 2, dropout=self.p, batch_first=True))


class _Recurrent(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = 2 * self.layers(x)[0]
        return out


@dataclass(frozen=True)
class Convolution(Block):
    """Over positions: of a sequence, of the past only, or of an image of one column."""

    p: float
    kind: Literal["sequence", "causal", "image"] = "sequence"

    def build(self, plan: Plan) -> nn.Module:
        image = self.kind == "image"
        layer = nn.Conv2d(WIDTH, WIDTH, (3, 1)) if image else nn.Conv1d(WIDTH, WIDTH, 3)
        plain = nn.Dropout2d(self.p) if image else nn.Dropout1d(self.p)
        batch_dim = (0, 2) if self.kind == "causal" else 0
        dropout = plan.site(WIDTH, self.p, dim=1, batch_dim=batch_dim) if plan.placed else plain
        return _Convolution(layer, dropout, self.kind == "causal")


class _Convolution(nn.Module):
    def __init__(self, layer: nn.Module, dropout: nn.Module, causal: bool) -> None:
        super().__init__()
        self.layer, self.dropout, self.causal = layer, dropout, causal

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT if isinstance(self.layer, nn.Conv1d) else x.mT.unsqueeze(-1)
        ends = (2, 0) if self.causal else (1, 1)
        x = nn.functional.pad(x, ends if x.ndim == 3 else (0, 0, *ends))
        x = self.dropout(torch.tanh(self.layer(x)))
        return x.flatten(2).mT


@dataclass(frozen=True)
class Rows(Block):
    """Rows that see one another."""

    kind: Literal["centred", "graph", "neighbour"] = "centred"

    def build(self, plan: Plan) -> nn.Module:
        return _Rows(self.kind)


class _Rows(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "centred":
            return x - x.mean(0)
        if self.kind == "neighbour":
            return x + x.roll(1, 0)
        flat = x.flatten(1)
        weights = (flat @ flat.mT / flat.shape[1]).softmax(-1)
        return torch.tanh(self.linear((weights @ flat).view(x.shape)))
