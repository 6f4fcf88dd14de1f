"""Dropout on attention weights, with contexts that depend on the sample.

The paper pools the softmaxed weights themselves over queries and keys to get a head's context. Each row of them sums to
one, so that the pooled value is 1 / N_K for every head and every sample, and the rates cannot depend on the input. The
contexts here do.

========== ========================================================= ==========
context    of each sample                                            channels
========== ========================================================= ==========
entropy    how widely each head looks: mean entropy of its rows,     H
           relative to looking everywhere it may
scores     mean of each head's scores before the softmax             H
queries    the mean query of each head                               H * d
weights    the paper's: constant, for comparison only                H
========== ========================================================= ==========

A position-wise site (``batch_dim=(0, 2)``) has rates of its own for each query. Its context is of that query alone, and
of the keys that it may look at: in causal attention nothing that comes later.

Padded keys and queries that are known to be padding have no influence on the first three. The paper's mean counts both,
as it has to in order to be constant: over the n keys that are not padding it would be 1 / n, the length of the text.

The padded queries are known to :class:`AttentionDropout`, which is given them, and to converted self-attention, whose
keys they are. Converted cross-attention (of ``nn.TransformerDecoderLayer`` or of a Hugging Face decoder) is given the
padding of its keys alone: there padded queries count.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contextual_dropout.nn.sequence_dropout import has_own_positions
from contextual_dropout.nn.site import AttentionContext, ContextualDropout

__all__ = [
    "CONTEXTS",
    "AttentionContext",
    "AttentionDropout",
    "AttentionTensors",
    "attention_entropy",
    "masked_attention",
    "mean_weights",
    "pooled_queries",
    "pooled_scores",
    "warn_if_causal",
]

#: A key this far below a query's best one, or below 0, is masked: by -1e4, -1e9, the least number that the precision
#: has, or -inf. A genuine score has lost all its weight long before, in any precision.
MASKED = 5e3
#: The attribute of sites that pool over queries by default, not because the user asked for it.
UNASKED = "pools_unasked"


@dataclass(frozen=True)
class AttentionTensors:
    """The tensors at the place where a site masks attention weights.

    Attributes:
        weights: (B, H, N_Q, N_K), softmaxed; NaN where a query may look at no key.
        scores: the same before the softmax; very negative or -inf where a query may not look.
        queries: (B, H, N_Q, d).
        padded: (B, N_Q), True for queries that are padding.
    """

    weights: Tensor
    scores: Tensor
    queries: Tensor
    padded: Tensor | None = None


def attention_entropy(
    weights: Tensor, scores: Tensor, padded: Tensor | None = None, *, per_query: bool = False
) -> Tensor:
    """The breadth of each head's attention relative to the widest possible: mean over queries of H(weights) / log(N_K).

    N_K counts the keys that are not masked, even if their weights are too small for the precision; padded queries, or
    those without any key, are left out of the mean.

    Args:
        weights: (B, H, N_Q, N_K), softmaxed; NaN where a query may look at no key.
        scores: the same before the softmax: they tell which keys are masked.
        padded: (B, N_Q), True for queries to leave out.
        per_query: do not average over queries.

    Returns:
        (B, H), from 0 to 1 up to rounding; (B, N_Q, H) per query.

    Example:
        >>> scores = torch.tensor([[[[0.0, 0.0, -200.0, -torch.inf]]]])  # three keys, one of which has no weight
        >>> attention_entropy(scores.softmax(-1), scores)  # log(2) / log(3)
        tensor([[0.6309]])
    """
    weights = weights.nan_to_num()
    keys = _allowed(scores).sum(-1)  # (B, H, N_Q)
    counted = keys > 0 if padded is None else (keys > 0) & ~padded[:, None, :]
    # Not torch.special.entr, whose derivative at 0 is infinite: it would make the pathwise gradient NaN.
    entropy = -(weights * weights.clamp_min(torch.finfo(weights.dtype).tiny).log())
    relative = entropy.sum(-1) / keys.clamp_min(2).to(_precise(weights)).log()
    return (relative * counted).mT if per_query else _mean(relative * counted, counted, -1)


def pooled_scores(scores: Tensor, padded: Tensor | None = None, *, per_query: bool = False) -> Tensor:
    """The mean score of each head over all pairs of a query and a key that it may look at.

    Args:
        scores: (B, H, N_Q, N_K), before the softmax.
        padded: (B, N_Q), True for queries to leave out.
        per_query: average over keys alone.

    Returns:
        (B, H); (B, N_Q, H) per query.
    """
    counted = _allowed(scores)
    if padded is not None:
        counted = counted & ~padded[:, None, :, None]
    scores = scores.masked_fill(~counted, 0)
    return _mean(scores, counted, -1).mT if per_query else _mean(scores, counted, (-2, -1))


def pooled_queries(queries: Tensor, padded: Tensor | None = None, *, per_query: bool = False) -> Tensor:
    """The mean query of each head.

    Args:
        queries: (B, H, N_Q, d).
        padded: (B, N_Q), True for queries to leave out.
        per_query: do not average.

    Returns:
        (B, H * d); (B, N_Q, H * d) per query.
    """
    if per_query:
        return queries.transpose(1, 2).flatten(2)
    if padded is None:
        return queries.mean(2).flatten(1)
    counted = (~padded)[:, None, :, None]
    return _mean(queries.masked_fill(~counted, 0), counted, 2).flatten(1)


def _allowed(scores: Tensor) -> Tensor:
    """True for keys that a query may look at, like the scores; small weights round to 0 and do not tell."""
    return scores > scores.amax(-1, keepdim=True).clamp_min(0) - MASKED


def _mean(values: Tensor, counted: Tensor, axes: int | tuple[int, ...]) -> Tensor:
    """The mean over the counted values; the others must be 0."""
    return values.sum(axes, dtype=_precise(values)) / counted.sum(axes).clamp_min(1)


def _precise(values: Tensor) -> torch.dtype:
    """The precision of sums and counts: at least single, since they soon exceed the range of float16."""
    return torch.promote_types(values.dtype, torch.float32)


def mean_weights(weights: Tensor, scores: Tensor, *, per_query: bool = False) -> Tensor:
    """The paper's context, the mean weight: constant. (B, H), or (B, N_Q, H) over the keys that each query may see."""
    weights = weights.nan_to_num()
    return _mean(weights, _allowed(scores), -1).mT if per_query else weights.mean((-2, -1))


#: The function that computes each kind of context, per query or not.
CONTEXTS: dict[AttentionContext, Callable[..., Tensor]] = {
    "entropy": lambda it, per_query=False: attention_entropy(it.weights, it.scores, it.padded, per_query=per_query),
    "scores": lambda it, per_query=False: pooled_scores(it.scores, it.padded, per_query=per_query),
    "queries": lambda it, per_query=False: pooled_queries(it.queries, it.padded, per_query=per_query),
    "weights": lambda it, per_query=False: mean_weights(it.weights, it.scores, per_query=per_query),
}


def masked_attention(site: ContextualDropout, attended: AttentionTensors) -> Tensor:
    """The weights under a site's masks, with the context that the site was built for."""
    context = CONTEXTS[site.attention_context](attended, has_own_positions(site))
    masked: Tensor = site(attended.weights, context=context)
    return masked


def warn_if_causal(site: ContextualDropout, scores: Tensor) -> None:
    """Warn if a site pools over the queries of attention that turns out to be causal, unless the user asked for it.

    Checked once, at the first call with a mask.
    """
    if torch.compiler.is_compiling() or not getattr(site, UNASKED, False):
        return
    square = scores.shape[-2] == scores.shape[-1] > 1
    if not square or torch._C._functorch.is_functorch_wrapped_tensor(scores):
        return
    setattr(site, UNASKED, False)
    allowed = _allowed(scores.detach())  # nothing for a checkpointed pass to save
    if not has_own_positions(site) and not bool(allowed.triu(1).any()) and bool(allowed.tril(-1).any()):
        warnings.warn(
            "a contextual dropout site pools over all queries of attention that is causal: what a position sees then "
            "depends on later ones. Convert again with an example= that has the mask, with positions='own', or, if "
            "that is meant, with positions='pooled'",
            UserWarning,
            stacklevel=3,
        )


class AttentionDropout(nn.Module):
    """Dropout on attention weights, for attention that is written out; ``cd.contextualize`` puts a site here.

    By itself it is an ``nn.Dropout`` on the weights. The site that replaces it has one keep probability for each head
    and a context that depends on the sample: ``attention_context="entropy"``, "scores" or "queries" (or "weights", as
    in the paper).

    Args:
        p: drop rate.

    Shape:
        Weights and scores (B, H, N_Q, N_K), queries (B, H, N_Q, d); the output is like the weights.

    Example:
        >>> layer = AttentionDropout(0.1)
        >>> queries, keys = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8)
        >>> scores = queries @ keys.mT
        >>> layer(scores.softmax(-1), scores, queries).shape
        torch.Size([2, 4, 5, 6])
    """

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.dropout: nn.Module = nn.Dropout(p)

    def forward(self, weights: Tensor, scores: Tensor, queries: Tensor, padded: Tensor | None = None) -> Tensor:
        """The weights under dropout; see :class:`AttentionTensors` for the arguments."""
        if isinstance(self.dropout, ContextualDropout):
            return masked_attention(self.dropout, AttentionTensors(weights, scores, queries, padded))
        dropped: Tensor = self.dropout(weights)
        return dropped
