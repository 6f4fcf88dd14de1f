"""Multi-head attention whose weights a site can reach."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contextual_dropout.nn.attention_dropout import AttentionTensors, masked_attention, warn_if_causal
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["ContextualMultiheadAttention"]


class ContextualMultiheadAttention(nn.MultiheadAttention):
    """:class:`torch.nn.MultiheadAttention` with a site on the softmaxed weights, one keep probability per head.

    A converted module gets this class; its parameters, their names and its interface stay as they are.
    """

    contextual_dropout: ContextualDropout

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend as :class:`torch.nn.MultiheadAttention` does; the returned weights are those before dropout."""
        if is_causal and attn_mask is None:
            raise ValueError("is_causal=True is a hint about attn_mask, which is missing: give the causal mask itself")
        batched, swapped = query.ndim == 3, query.ndim == 3 and not self.batch_first
        inputs = [t if batched else t.unsqueeze(0) for t in (query, key, value)]
        inputs = [t.transpose(0, 1) if swapped else t for t in inputs]
        if key_padding_mask is not None and not batched:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        q, k, v = (self._heads(t) for t in self._project(*inputs))  # (B, H, N, E / H)
        scores = _masked(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), attn_mask, key_padding_mask)
        if attn_mask is not None:
            warn_if_causal(self.contextual_dropout, scores)
        weights = scores.softmax(-1)
        padded = _padding(key_padding_mask) if query is key else None
        if not need_weights:  # as torch does then: a query that may look at no key sees zeros
            weights = weights.nan_to_num()
        dropped = masked_attention(self.contextual_dropout, AttentionTensors(weights, scores, q, padded))
        out: Tensor = self.out_proj((dropped @ v).transpose(1, 2).flatten(2))
        out = out.transpose(0, 1) if swapped else out
        shown = weights.mean(1) if average_attn_weights else weights
        if not batched:
            out, shown = out.squeeze(0), shown.squeeze(0)
        return out, shown if need_weights else None

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        if self._qkv_same_embed_dim:
            parts = self.in_proj_weight.chunk(3)
        else:
            parts = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        inputs = (query, key, value)
        return [F.linear(t, weight, bias) for t, weight, bias in zip(inputs, parts, biases, strict=True)]

    def _heads(self, t: Tensor) -> Tensor:
        batch, length, _ = t.shape
        return t.view(batch, length, self.num_heads, -1).transpose(1, 2)


def _padding(mask: Tensor | None) -> Tensor | None:
    """True for keys that are padding, (B, N_K). ``nn.TransformerEncoder`` makes an additive mask of a boolean one."""
    return mask if mask is None or mask.dtype is torch.bool else mask == -math.inf


def _masked(scores: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor:
    """Add both masks, boolean (True: not allowed) or additive, to scores (B, H, N_Q, N_K)."""
    batch, heads, queries, keys = scores.shape
    if attn_mask is not None:
        _check_mask("attn_mask", attn_mask, {(queries, keys), (batch * heads, queries, keys)})
        scores = _add(scores, attn_mask.view(scores.shape) if attn_mask.ndim == 3 else attn_mask)
    if key_padding_mask is not None:
        _check_mask("key_padding_mask", key_padding_mask, {(batch, keys)})
        scores = _add(scores, key_padding_mask[:, None, None, :])
    return scores


def _add(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -math.inf) if mask.dtype is torch.bool else scores + mask.to(scores.dtype)


def _check_mask(name: str, mask: Tensor, shapes: set[tuple[int, ...]]) -> None:
    if mask.dtype is not torch.bool and not mask.is_floating_point():
        raise TypeError(f"{name} must be boolean (True: not allowed) or floating point (added), got {mask.dtype}")
    if tuple(mask.shape) not in shapes:
        expected = " or ".join(map(str, sorted(shapes, key=len)))
        raise ValueError(f"{name} must have the shape {expected}, got {tuple(mask.shape)}")
