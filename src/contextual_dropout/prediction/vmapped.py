"""Running sites inside of :func:`torch.vmap`: all samples of a chunk as one long batch.

To vmap a site is some twenty operations, each with a batching rule (or without: then vmap loops). But a site treats
its examples independently anyway, so that the k samples of B examples are k B examples. This is the only place
that reaches below vmap's surface, by names that torch does not promise: where one is gone, :data:`AVAILABLE` is False
and samples are not batched.
"""

from __future__ import annotations

from torch import Tensor

from contextual_dropout.nn.site import ContextualDropout

try:
    from torch._C._functorch import _add_batch_dim, get_unwrapped, is_batchedtensor, maybe_get_bdim, maybe_get_level
    from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = True

__all__ = ["AVAILABLE", "as_rows", "is_batched", "masked_rows"]


def is_batched(tensor: Tensor) -> bool:
    """Whether the tensor has another value for each sample of the vmap around it."""
    return AVAILABLE and bool(is_batchedtensor(tensor))


def as_rows(site: ContextualDropout, u: Tensor, context: Tensor | None) -> bool:
    """Whether this is the usual case: examples on the first axis and no context.

    A position-wise site has examples there too, and so have several rows of each example, one after the other.
    """
    return context is None and site.batch_dims[0] == 0 and u.ndim > 1 and site.dim % u.ndim != 0


def masked_rows(site: ContextualDropout, u: Tensor, logits: Tensor | None, spread: Tensor) -> Tensor:
    """Features under fresh masks, one for each sample and example.

    Args:
        site: in the case of :func:`as_rows`.
        u: (B, ...), the same for all samples or not.
        logits: (B, C), or (B, positions, C), if they are known, which they can only be where ``u`` is the same for all
            samples.
        spread: (), what the vmap runs over: k numbers.

    Returns:
        (B, ...), different for each sample.
    """
    level, samples = maybe_get_level(spread), len(get_unwrapped(spread))
    shared, axis = not is_batched(u), maybe_get_bdim(u)
    with temporarily_pop_interpreter_stack():
        if shared:
            rows, logits = _repeat(u, samples), _repeat(site.logits(u) if logits is None else logits, samples)
        else:
            rows = get_unwrapped(u).movedim(axis, 0).flatten(0, 1)  # (k B, ...)
            logits = site.logits(rows)
        out = site.sampled(rows, logits)
        out = out.reshape(samples, len(rows) // samples, *out.shape[1:])  # (k, B, ...)
    return _add_batch_dim(out, 0, level)


def _repeat(tensor: Tensor, samples: int) -> Tensor:
    """(B, ...) to (k B, ...)."""
    return tensor.expand(samples, *tensor.shape).flatten(0, 1)
