"""Many passes of a network that share everything before its first random call, its *prefix*.

The first pass is recorded: what was called, what it returned, and which call was the first to draw random numbers
(a site's, or any that moves torch's generators). In later passes each call before that one returns what it
returned at first; the rest, the *suffix*, is computed.

Correct first, as in :mod:`contextual_dropout.rerun`: when a tensor of the prefix was changed in place later, the
code takes another path, a result that nobody held any more is read, a buffer is updated, or random numbers are
drawn where a torch function mode cannot see it (in a scripted module, for instance), the whole pass is computed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from contextual_dropout.batching import as_rows, masked_rows
from contextual_dropout.randomness import Reader
from contextual_dropout.rerun import NotRepeatable
from contextual_dropout.site import ContextualDropout, masked
from contextual_dropout.tape import copied

__all__ = ["Call", "SharedPrefix"]

_PLACEHOLDER = torch.empty(0, device="meta")


class Call(Protocol):
    """A model with its inputs: one pass."""

    def __call__(self) -> Tensor:
        """The output of a pass."""

    def tensors(self) -> list[Tensor]:
        """The inputs that the model is given."""

    def settled(self) -> bool:
        """Whether the model's buffers are as they were at first."""

    def renew(self) -> None:
        """Undo what a pass changed in inputs and buffers."""


@dataclass(eq=False, slots=True)
class _Fork:
    """The moment of the first random call.

    Attributes:
        position: how many calls came before it.
        func: what was called.
        live: the results of earlier calls that the network still held, by position.
        versions: every tensor that the suffix may read, with its version at that moment.
        arguments: the tensors that it was given.
        logits: of the site, if it was one.
    """

    position: int
    func: Any
    live: dict[int, Tensor]
    versions: list[tuple[Tensor, int]]
    arguments: list[Tensor]
    logits: Tensor | None

    def intact(self) -> bool:
        """Whether nothing that the suffix may read has been changed in place since."""
        return all(_version(tensor) == version for tensor, version in self.versions)


class SharedPrefix(TorchFunctionMode):
    """Runs passes of ``call``.

    Args:
        call: what to run.
        read: reads the generators.

    Attributes:
        random: whether the first pass drew any random number.
    """

    def __init__(self, call: Call, read: Reader) -> None:
        super().__init__()
        self.random = False
        self._call = call
        self._read = read
        self._step = SharedPrefix._record  # not bound: passes and their tensors are to go without the garbage collector
        self._begun = False
        self._calls: list[tuple[Any, Any]] = []
        self._fork: _Fork | None = None
        self._position = 0
        self._spread: Tensor | None = None

    def run(self, spread: Tensor | None = None) -> Tensor:
        """The output of one pass, (B, ...).

        Args:
            spread: inside of :func:`torch.vmap`, a batched zero (), which makes sites draw a mask per sample.
        """
        self._spread = spread
        if self._fork is not None and self._fork.intact() and self._call.settled():
            try:
                return self._replay()
            except (NotRepeatable, Exception):
                pass  # the whole pass is right, or raises what is really wrong
        self._fork = None
        self._call.renew()
        return self.compute(spread) if self._begun else self._first()

    def compute(self, spread: Tensor | None = None) -> Tensor:
        """The output of a pass that is neither recorded nor replayed."""
        self._spread, self._step = spread, SharedPrefix._compute_call
        with self:
            return self._call()

    def _first(self) -> Tensor:
        self._begun, self._state = True, self._read()
        start = self._state
        with self:
            out = self._call()
        self.random = self.random or self._step is SharedPrefix._compute_call or start != self._read()
        if self._step is SharedPrefix._record:
            self._calls.clear()  # no random call was seen
        self._step = SharedPrefix._compute_call
        return out

    def _replay(self) -> Tensor:
        self._position, self._step = 0, SharedPrefix._recall
        with self:
            out = self._call()
        if self._step is not SharedPrefix._compute_call or out.device.type == "meta":
            raise NotRepeatable
        return out

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._step(self, func, args, kwargs or {})

    def _compute_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._masked(*args) if func is masked else func(*args, **kwargs)

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._read() != self._state:  # somebody drew out of our sight
            self._calls.clear()
            self._step = SharedPrefix._compute_call
            return self._compute_call(func, args, kwargs)
        if func is masked:
            site, u, *context = args
            self._mark(func, (args, kwargs), site.logits(u, *context))
            return self._masked(*args)
        target = kwargs.get("out", args[0] if args else None)
        version = _version(target)
        out = func(*args, **kwargs)
        if kwargs.get("generator") is None and self._read() == self._state:
            self._calls.append((func, weakref.ref(out) if isinstance(out, Tensor) else copied(out)))
        elif _version(target) == version:
            self._mark(func, (args, kwargs))
        else:  # random numbers written into a tensor of the prefix
            self._step = SharedPrefix._compute_call
        return out

    def _recall(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._fork is not None
        position, self._position = self._position, self._position + 1
        if position == self._fork.position:
            # Other code than torch's (numpy's, for instance) may have made a tensor of the prefix anew.
            pairs = zip(_leaves((args, kwargs)), self._fork.arguments, strict=True)
            if func != self._fork.func or not all(a is b for a, b in pairs):
                raise NotRepeatable
            self._step = SharedPrefix._compute_call
            return self._compute_call(func, args, kwargs)
        recorded, out = self._calls[position]
        if recorded is not func and recorded != func:
            raise NotRepeatable
        live = self._fork.live.get(position)
        if live is not None:
            return live
        return _PLACEHOLDER if isinstance(out, weakref.ref) else copied(out)

    def _mark(self, func: Any, arguments: Any, logits: Tensor | None = None) -> None:
        """The call that is being recorded is the first random one."""
        references = ((n, out()) for n, (_, out) in enumerate(self._calls) if isinstance(out, weakref.ref))
        live = {n: tensor for n, tensor in references if tensor is not None}
        held = [out for _, out in self._calls if not isinstance(out, weakref.ref)]
        tensors = [*live.values(), *self._call.tensors(), *_leaves(held)]
        versions = [(tensor, _version(tensor)) for tensor in tensors]
        self._fork = _Fork(len(self._calls), func, live, versions, _leaves(arguments), logits)
        self._step = SharedPrefix._compute_call

    def _masked(self, site: ContextualDropout, u: Tensor, context: Tensor | None = None) -> Tensor:
        known = self._fork.logits if self._fork is not None and u is self._fork.arguments[0] else None
        if self._spread is not None and as_rows(site, u, context):
            return masked_rows(site, u, known, self._spread)
        logits = site.logits(u, context) if known is None else known
        if self._spread is not None:
            logits = logits + self._spread.to(logits)  # a mask per sample, also where u is the same for all
        return site.sampled(u, logits)


def _version(value: Any) -> int:
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _leaves(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
