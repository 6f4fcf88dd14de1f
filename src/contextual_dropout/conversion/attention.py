"""Multi-head attention whose weights a site can reach."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contextual_dropout.site import ContextualDropout

__all__ = ["ContextualMultiheadAttention", "attention_entropy"]


def attention_entropy(weights: Tensor) -> Tensor:
    """How widely each head looks, relative to looking everywhere: mean over queries of H(weights) / log(N_K).

    The paper pools the weights themselves, which sum to one for every query: their mean is 1 / N_K whatever the input
    is. The entropy does depend on the input. Keys with weight zero (padding) do not contribute.

    Args:
        weights: (B, H, N_Q, N_K), softmaxed.

    Returns:
        (B, H), in [0, 1].
    """
    entropy: Tensor = torch.special.entr(weights)
    return entropy.sum(-1).mean(-1) / max(math.log(weights.shape[-1]), 1e-6)


class ContextualMultiheadAttention(nn.MultiheadAttention):
    """:class:`torch.nn.MultiheadAttention` with a site on the softmaxed weights, one keep probability per head.

    A converted module takes this class on; its parameters, their names and its interface stay as they are.
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
        """See :class:`torch.nn.MultiheadAttention`; the returned weights are those before dropout."""
        batched, swapped = query.ndim == 3, query.ndim == 3 and not self.batch_first
        inputs = [t if batched else t.unsqueeze(0) for t in (query, key, value)]
        inputs = [t.transpose(0, 1) if swapped else t for t in inputs]
        if key_padding_mask is not None and not batched:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        q, k, v = (self._heads(t) for t in self._project(*inputs))  # (B, H, N, E / H)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = _masked(scores, attn_mask, key_padding_mask).softmax(-1)
        dropped = self.contextual_dropout(weights, context=attention_entropy(weights.detach()))
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


def _masked(scores: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor:
    """Add both masks, boolean (True: not allowed) or additive, to scores (B, H, N_Q, N_K)."""
    if attn_mask is not None:
        mask = attn_mask.view(*scores.shape) if attn_mask.ndim == 3 else attn_mask
        scores = scores.masked_fill(mask, -math.inf) if mask.dtype is torch.bool else scores + mask
    if key_padding_mask is not None:
        padding = key_padding_mask[:, None, None, :]
        scores = scores.masked_fill(padding, -math.inf) if padding.dtype is torch.bool else scores + padding
    return scores
