"""What a pass drew, and what is needed to run it again from one of its draws on.

A :class:`Recording` watches the true pass: every torch call of the user's code and every draw of a site. See
:mod:`contextual_dropout.rerun` for what is done with it.

Memory: the recording holds weak references, and at each draw a strong one to what the user's code still holds
at that moment. That set (skip connections, mostly) is all that the rest of the pass can read.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contextual_dropout.families import Family
from contextual_dropout.gate import Gate
from contextual_dropout.site import ContextualDropout, Draw, masked

__all__ = ["BatchNormCall", "Fork", "RandomState", "Recording", "Sampler"]

#: How noise becomes a mask: ``(family, logits, noise) -> mask``.
Sampler = Callable[[Family, Tensor, Tensor], Tensor]


class RandomState:
    """The state of the generators that a pass on ``device`` draws from."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._cpu = torch.get_rng_state()
        self._accelerator = None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)

    def restore(self) -> None:
        """Put the generators back to this state."""
        torch.set_rng_state(self._cpu)
        if self._accelerator is not None:
            torch.get_device_module(self.device).set_rng_state(self._accelerator, self.device)


class BatchNormCall(NamedTuple):
    """The arguments of a call of :func:`torch.nn.functional.batch_norm`, with its names and defaults."""

    input: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None = None
    bias: Tensor | None = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5

    @property
    def layer(self) -> tuple[int, int]:
        """Tells the calls of one layer from those of another."""
        return id(self.running_mean), id(self.weight)


class BatchStatistics:
    """Mean and variance over the batch that a normalisation saw, computed when first asked for."""

    def __init__(self, batch: Tensor) -> None:
        self._batch = batch

    @cached_property
    def variance_and_mean(self) -> tuple[Tensor, Tensor]:
        """(C,) each; the variance is the biased one, as normalisation uses it."""
        axes = [axis for axis in range(self._batch.ndim) if axis != 1]
        return torch.var_mean(self._batch, axes, correction=0)


@dataclass(eq=False, slots=True)
class Fork:
    """The moment of a draw.

    Attributes:
        position: how many calls came before it.
        live: the results of earlier calls that the user's code still held, by position.
        versions: every tensor that a suffix may read, with its version at that moment.
        after: the generators just after the draw.
    """

    position: int
    live: dict[int, Tensor]
    versions: list[tuple[Tensor, int]]
    after: RandomState

    def intact(self) -> bool:
        """Whether nothing that a suffix may read has been changed in place since."""
        return all(tensor._version == version for tensor, version in self.versions)


class Recording(TorchFunctionMode):
    """Watches a pass.

    Args:
        model: the network; its buffers may be changed by this pass, but not by a rerun.
        sampler: how sites turn noise into masks in this pass.
        replayable: whether to keep what a replay needs.

    Attributes:
        draws: the sites' random calls, in call order.
        forks: for each draw, from where the pass can be run again.
        encoder_gate: see :mod:`contextual_dropout.gate`; closed unless an estimator opens it.
        mask_gate: whether gradients flow from the network into pathwise masks.
        calls: what was called and what it returned (tensors as weak references).
        norms: the statistics of each batch normalisation's calls.
        mutations: tensors from outside of the pass that it changed in place, with the call's position.
    """

    def __init__(self, model: nn.Module, sampler: Sampler, *, replayable: bool = True) -> None:
        super().__init__()
        self.draws: list[Draw] = []
        self.forks: list[Fork] = []
        self.encoder_gate = Gate(open=False)
        self.mask_gate = Gate(open=True)
        self.calls: list[tuple[Any, Any]] = []
        self.norms: dict[tuple[int, int], list[BatchStatistics]] = defaultdict(list)
        self.mutations: list[tuple[int, Tensor]] = []
        self.replayable = replayable
        self.before = RandomState(next((p.device for p in model.parameters()), torch.device("cpu")))
        self._model = model
        self._sampler = sampler
        self._candidates: list[tuple[int, weakref.ref[Tensor]]] = []
        self._held: list[Tensor] = []

    def name_of(self, site: ContextualDropout) -> str:
        """What the model calls a site."""
        names = (name for name, module in self._model.named_modules() if module is site)
        return next(names, "(not part of the model)") or "(the model itself)"

    @cached_property
    def buffers(self) -> frozenset[int]:
        """The ids of the model's buffers."""
        return frozenset(map(id, self._model.buffers()))

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is masked:
            return self._visit(*args)
        if func is F.batch_norm and (call := BatchNormCall(*args, **kwargs)).training:
            self.norms[call.layer].append(BatchStatistics(call.input.detach()))
        target = kwargs.get("out", args[0] if args else None)
        if not isinstance(target, Tensor):
            return self._remember(func, func(*args, **kwargs))
        version, given = target._version, target.is_leaf
        out = func(*args, **kwargs)
        if given and target._version != version and not self._made_here(target):
            self.mutations.append((len(self.calls), target))
            self.calls.append((func, out))
            return out
        return self._remember(func, out)

    def _visit(self, site: ContextualDropout, u: Tensor, context: Tensor | None = None) -> Tensor:
        logits = site.logits(u, context, self.encoder_gate)
        noise = site.family.noise(logits)
        sampled = self._sampler(site.family, logits, noise)
        draw = Draw(site, logits, noise, sampled, self.mask_gate(sampled))
        self.draws.append(draw)
        self.forks.append(self._fork())
        out = site.apply_mask(u, draw.mask)
        self._remember(masked, out)
        return out

    def _remember(self, func: Any, out: Any) -> Any:
        """Note a call and hand its result on."""
        position = len(self.calls)
        if isinstance(out, Tensor):
            reference = weakref.ref(out)
            self._candidates.append((position, reference))
            self.calls.append((func, reference))
        else:
            self.calls.append((func, out))
            if isinstance(out, tuple | list | dict):
                self._held.extend(_tensors(out))
        return out

    def _fork(self) -> Fork:
        live = {position: tensor for position, reference in self._candidates if (tensor := reference()) is not None}
        self._candidates = [(position, reference) for position, reference in self._candidates if position in live]
        if not self.replayable:
            live.clear()
        versions = [(tensor, tensor._version) for tensor in (*live.values(), *self._held)]
        return Fork(len(self.calls), live, versions, RandomState(self.before.device))

    def _made_here(self, tensor: Tensor) -> bool:
        """Whether a call of this pass returned ``tensor`` or, if it is a view, what it looks into."""
        owner = tensor if tensor._base is None else tensor._base
        return any(reference() is owner for _, reference in self._candidates)


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
