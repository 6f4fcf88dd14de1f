"""Running many passes of a network that share everything before its first random call, its *prefix*.

The first pass is recorded: what was called and with what, what it returned, and which call was the first to draw random
numbers (a site's, or any that moves torch's generators). In later passes each call before that one returns what it
returned at first; the rest, the *suffix*, is computed.

Correct first, as in :mod:`contextual_dropout.replay.rerun`: when a tensor of the prefix was changed in place later, the
code takes another path or gives a call other numbers, a result that was no longer in use is read, a buffer is updated,
or random numbers are drawn where a torch function mode cannot see it (in a scripted module, for instance), the whole
pass is computed. And a network that keeps or changes tensors of its own in a pass, draws from a generator of its own,
or reaches for a tensor's memory (``.data``, ``.numpy()``) shares nothing at all: see :attr:`SharedPrefix.whole`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from contextual_dropout.nn.functional_dropout import switched_on
from contextual_dropout.nn.site import ContextualDropout, masked
from contextual_dropout.prediction.trace import SPLIT, Trace, tensors_in
from contextual_dropout.prediction.vmapped import as_rows, masked_rows
from contextual_dropout.replay.generators import Reader
from contextual_dropout.replay.tensors import NotRepeatable, copied, version

__all__ = ["Call", "SharedPrefix"]

_PLACEHOLDER = torch.empty(0, device="meta")


class Call(Protocol):
    """A model with its inputs: one pass."""

    def __call__(self) -> Tensor:
        """The output of a pass."""

    def tensors(self) -> list[Tensor]:
        """The inputs that the model is given."""

    def buffers(self) -> list[Tensor]:
        """The model's buffers, which are put back."""

    def settled(self) -> bool:
        """Whether the model's buffers are as they were at first."""

    def renew(self) -> None:
        """Undo what a pass changed in inputs and buffers."""


@dataclass(eq=False, slots=True)
class _Fork:
    """The moment of the first random call.

    Attributes:
        position: how many calls came before it.
        live: the results of earlier calls that the network still held, by position.
        versions: every tensor that the suffix may read, with its version at that moment.
        arguments: the tensors that it was given.
        logits: of the site, if it was one.
    """

    position: int
    live: dict[int, Tensor]
    versions: list[tuple[Tensor, int]]
    arguments: list[Tensor]
    logits: Tensor | None

    def intact(self) -> bool:
        """Whether nothing that the suffix may read has been changed in place since."""
        return all(version(tensor) == was for tensor, was in self.versions)


class SharedPrefix(TorchFunctionMode):
    """Runs passes of ``call``: first :meth:`first`, then :meth:`run` as often as wanted.

    Args:
        call: what to run.
        read: reads the generators.

    Attributes:
        random: whether the first pass drew any random number.
        whole: whether later passes must not share anything with the first: it drew from a generator of its own, kept
            or changed tensors, or handed out their memory.
        splits: whether :func:`torch.vmap` is known to give each sample draws of its own.
    """

    def __init__(self, call: Call, read: Reader) -> None:
        super().__init__()
        self.random, self.whole, self.splits = False, False, True
        self._call = call
        self._read = read
        self._step = SharedPrefix._record  # not bound: passes and their tensors are freed without the garbage collector
        self._trace = Trace()
        self._results: list[Any] = []
        self._fork: _Fork | None = None
        self._position = 0
        self._spread: Tensor | None = None
        self._known: Tensor | None = None

    def first(self) -> Tensor:
        """Run the first pass, which is computed as it is and watched, and return its output, (B, ...)."""
        start = self._state = self._read()
        with self:
            out = self._call()
        out = out.detach().clone()  # a view would keep its base alive
        trace = self._trace
        self.random = trace.own_generator or start != self._read()
        changed = trace.disturbed([*self._call.tensors(), *self._call.buffers()])
        self.whole = trace.own_generator or trace.below or changed or trace.kept()
        return out

    def run(self, spread: Tensor | None = None) -> Tensor:
        """Run one more pass and return its output, (B, ...).

        Args:
            spread: inside of :func:`torch.vmap`, a batched zero (), which makes sites draw a mask per sample.
        """
        self._spread = spread
        if self._fork is not None and self._fork.intact() and self._call.settled():
            try:
                return self._replay()
            except (NotRepeatable, Exception):
                if spread is not None:
                    raise
                # else the whole pass is right, or raises what is really wrong
        self._fork = None
        self._call.renew()
        self._position, self._step = 0, SharedPrefix._continue
        with self:
            return self._call()

    def _replay(self) -> Tensor:
        self._position, self._step = 0, SharedPrefix._recall
        with self:
            out = self._call()
        if self._step is not SharedPrefix._continue or out.device.type == "meta":
            raise NotRepeatable
        return out

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._step(self, func, *switched_on(func, args, kwargs or {}))

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of the first pass, up to its first random one."""
        if self._drew():  # where it cannot be seen
            self._step = SharedPrefix._watch
            return self._watch(func, args, kwargs)
        if func is masked:
            site, u, *context = args
            self._known = site.logits(u, *context)
            self._mark(args, kwargs, self._known)
            return self._watch(func, args, kwargs)
        self._trace.note(func, args, kwargs)
        target = kwargs.get("out", args[0] if args else None)
        before = version(target)
        out = self._trace.made(func(*args, **kwargs))
        if not self._drew(func):
            self._results.append(weakref.ref(out) if isinstance(out, Tensor) else copied(out))
        elif version(target) == before:
            self._mark(args, kwargs)
        else:  # random numbers written into a tensor of the prefix
            self._step = SharedPrefix._watch
        return out

    def _watch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Watch a later call of the first pass."""
        self._drew()
        self._trace.note(func, args, kwargs)
        out = self._trace.made(self._compute(func, args, kwargs))
        self._drew(func)
        return out

    def _drew(self, func: Any = None) -> bool:
        """Whether torch's generators have moved since the last look, by ``func`` or by a call that is not seen."""
        before, self._state = self._state, self._read()
        moved = before != self._state
        self.splits = self.splits and (func in SPLIT or not moved)
        return moved

    def _mark(self, args: tuple[Any, ...], kwargs: dict[str, Any], logits: Tensor | None = None) -> None:
        """Mark the call that is being recorded as the first random one.

        Only aliases are held from here on: so tensors that are in use after the pass are in use by others.
        """
        originals = {n: out() for n, out in enumerate(self._results) if isinstance(out, weakref.ref)}
        aliases: dict[int, Tensor] = {}

        def alias(tensor: Tensor) -> Tensor:
            if not self._trace.is_made(tensor):
                return tensor
            return aliases.setdefault(id(tensor), tensor.detach())

        live = {n: alias(tensor) for n, tensor in originals.items() if tensor is not None}
        held = [out for out in self._results if not isinstance(out, weakref.ref)]
        self._results = [
            out if isinstance(out, weakref.ref) else tree_map_only(Tensor, alias, out) for out in self._results
        ]
        arguments = [alias(tensor) for tensor in tensors_in((args, kwargs))]
        tensors = [*live.values(), *self._call.tensors(), *map(alias, tensors_in(held))]
        versions = [(tensor, version(tensor)) for tensor in tensors]
        self._fork = _Fork(len(self._results), live, versions, arguments, logits)
        self._step = SharedPrefix._watch

    def _recall(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call of a later pass, up to the first random one."""
        assert self._fork is not None
        position, self._position = self._position, self._position + 1
        if not self._trace.follows(position, func, args, kwargs):
            raise NotRepeatable
        if position == self._fork.position:
            # Other code than torch's (numpy's, for instance) may have made a new tensor of the prefix.
            pairs = zip(tensors_in((args, kwargs)), self._fork.arguments, strict=True)
            if not all(a is b for a, b in pairs):
                raise NotRepeatable
            self._known, self._step = self._fork.logits, SharedPrefix._continue
            return self._compute(func, args, kwargs)
        if (live := self._fork.live.get(position)) is not None:
            return live
        out = self._results[position]
        return _PLACEHOLDER if isinstance(out, weakref.ref) else copied(out)

    def _continue(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute a call of a later pass."""
        position, self._position = self._position, self._position + 1
        if self._spread is not None and not self._trace.follows(position, func, args, kwargs):
            raise NotRepeatable  # other code than torch's gave other values: samples must not share them
        return self._compute(func, args, kwargs)

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._masked(*args) if func is masked else func(*args, **kwargs)

    def _masked(self, site: ContextualDropout, u: Tensor, context: Tensor | None = None) -> Tensor:
        known, self._known = self._known, None  # they belong to the call at the fork alone
        if self._spread is not None and as_rows(site, u, context):
            return masked_rows(site, u, known, self._spread)
        logits = site.logits(u, context) if known is None else known
        if self._spread is not None:
            logits = logits + self._spread.to(logits)  # a mask per sample, also where u is the same for all
        return site.sampled(u, logits)
