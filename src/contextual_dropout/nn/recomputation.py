"""Repeating the masks of the true pass under activation checkpointing.

``torch.utils.checkpoint`` runs a part of the network again while gradients flow back, when no recording watches any
more. What a site saves for backward then has to be what it saved in the true pass: it must sample in the same way,
straight through or relaxed for example. The noise is the same, as torch restores its generators, and so it tells which
pass is being repeated, also where several losses wait for their backward.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from contextual_dropout.nn.families import Family

__all__ = ["Sampler", "Sampling", "during_backward", "sampler_for"]

#: Makes a mask of noise: ``(family, logits, noise) -> mask``.
Sampler = Callable[[Family, Tensor, Tensor], Tensor]
#: The number of first values by which a draw's noise is recognised.
KNOWN_BY = 16


class Sampling:
    """The sampler of one pass, and the beginning of each draw's noise; forgotten once nothing holds it any more.

    Args:
        sampler: turns the noise of its sites into masks.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._noise: list[Tensor] = []
        with _LOCK:
            _PASSES.add(self)

    def note(self, noise: Tensor) -> None:
        """Remember a draw."""
        self._noise.append(_beginning(noise).clone())

    def hold(self, loss: Tensor) -> None:
        """Keep this object alive as long as gradients can flow back from ``loss``."""
        if loss.grad_fn is not None:
            loss.grad_fn.metadata[__name__] = self  # type: ignore[index]  # typed as a method, but a dictionary

    def drew(self, noise: Tensor) -> bool:
        """Whether this pass drew ``noise``."""
        beginning = _beginning(noise)
        alike = (known for known in self._noise if (known.dtype, known.device) == (noise.dtype, noise.device))
        return any(torch.equal(known, beginning) for known in alike)


def during_backward() -> bool:
    """Whether gradients are flowing back: what runs now is a recomputation."""
    return torch._C._current_graph_task_id() != -1


def sampler_for(noise: Tensor) -> Sampler | None:
    """The sampler of the pass that drew this noise and is being recomputed; None if no pass is."""
    if not during_backward():
        return None
    with _LOCK:
        passes = list(_PASSES)
    return next((sampling.sampler for sampling in passes if sampling.drew(noise)), None)


_PASSES: weakref.WeakSet[Sampling] = weakref.WeakSet()
_LOCK = threading.Lock()


def _beginning(noise: Tensor) -> Tensor:
    return noise.detach().flatten()[:KNOWN_BY]
