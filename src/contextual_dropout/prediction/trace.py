"""Tracing the calls of a pass and their arguments, to know that passes differ in random numbers alone.

A pass that is replayed from its first random call on, or run for many samples at once, does what the first pass did if
the same functions are called with the same numbers, and with the same tensors where these come from outside:
parameters, buffers, inputs, whatever the network gets from other code than torch's.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from contextual_dropout.nn.site import masked
from contextual_dropout.prediction.vmapped import is_batched
from contextual_dropout.replay.tensors import MEMORY, version

__all__ = ["SPLIT", "Trace", "tensors_in"]

#: Random functions for which :func:`torch.vmap` is known to give each sample its own draw, or to raise; with any other
#: function samples are looped.
SPLIT = frozenset(
    {
        *(masked, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
        *(torch.dropout, torch.feature_dropout, torch.alpha_dropout, torch.feature_alpha_dropout),
        *(torch.native_dropout, F.multi_head_attention_forward, F.scaled_dot_product_attention, F.gumbel_softmax),
        *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.rand_like, torch.randn_like),
        *(torch.randint_like, torch.normal, torch.bernoulli, torch.multinomial, torch.poisson),
        *(Tensor.bernoulli, Tensor.multinomial, Tensor.bernoulli_, Tensor.normal_, Tensor.uniform_),
        *(Tensor.exponential_, Tensor.random_),
    }
)
_MADE = object()


class Trace:
    """The calls of a pass.

    Attributes:
        own_generator: whether a generator was given to a call.
        below: whether a tensor's memory was handed out.
    """

    def __init__(self) -> None:
        self.own_generator = False
        self.below = False
        self._calls: list[tuple[Any, list[Any]]] = []
        self._made: dict[int, weakref.ref[Tensor]] = {}
        self._outside: dict[int, tuple[Tensor, int]] = {}

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call that is about to be made."""
        given = _given(args, kwargs)
        for place, value in enumerate(given):
            if isinstance(value, Tensor):
                if self.is_made(value):
                    given[place] = _MADE
                else:
                    self._outside.setdefault(id(value), (value, version(value)))
            elif isinstance(value, torch.Generator):
                self.own_generator = True
            elif isinstance(value, np.ndarray):
                given[place] = value.copy()
        self.below = self.below or func in MEMORY
        self._calls.append((func, given))

    def made(self, out: Any) -> Any:
        """Note what a call returned, and return it."""
        for tensor in (out,) if isinstance(out, Tensor) else tensors_in(out):
            if id(tensor) not in self._outside:
                self._made[id(tensor)] = weakref.ref(tensor)
        return out

    def follows(self, position: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call of a later pass is the same as that of the first at this position."""
        if position >= len(self._calls):
            return False
        called, given = self._calls[position]
        now = _given(args, kwargs)
        return (called is func or called == func) and len(now) == len(given) and all(map(_same, given, now))

    def kept(self) -> bool:
        """Whether a tensor that the pass made is still in use."""
        return any(reference() is not None for reference in self._made.values())

    def disturbed(self, renewed: Iterable[Tensor]) -> bool:
        """Whether the pass changed in place a tensor that it did not make and that will not be put back."""
        put_back = {id(tensor) for tensor in renewed}
        return any(version(tensor) != was for key, (tensor, was) in self._outside.items() if key not in put_back)

    def is_made(self, tensor: Tensor) -> bool:
        """Whether the pass made a tensor by a call that was seen."""
        reference = self._made.get(id(tensor))
        return reference is not None and reference() is tensor


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dictionaries."""
    return [leaf for leaf in _given((value,), {}) if isinstance(leaf, Tensor)]


def _given(args: Iterable[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Everything that is in the arguments of a call, in order."""
    found: list[Any] = []
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    return found


def _collect(values: Iterable[Any], found: list[Any]) -> None:
    for value in values:
        if isinstance(value, tuple | list):
            _collect(value, found)
        elif isinstance(value, dict):
            _collect(value.values(), found)
        else:
            found.append(value)


def _same(first: Any, now: Any) -> bool:
    if first is _MADE:
        return isinstance(now, Tensor)
    if first is now:
        return True
    if type(first) is not type(now):
        return False
    try:
        if isinstance(now, Tensor):  # a function that we do not see may have made both, for all samples at once
            return is_batched(now) or torch.equal(first, now)
        return bool(np.array_equal(first, now) if isinstance(now, np.ndarray) else first == now)
    except Exception:
        return False
