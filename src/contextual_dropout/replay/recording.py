"""Recording a pass: its draws, and what is needed to run it again from one of them on.

A :class:`Recording` watches the true pass: every torch call of the user's code and every draw of a site. See
:mod:`contextual_dropout.replay.rerun` for what is done with it.

Memory: results of calls are held by weak references, and at each draw by strong ones if the user's code still holds
them at that moment. That set (skip connections, mostly) is all that the rest of the pass can read.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from contextual_dropout.nn import families
from contextual_dropout.nn.recomputation import Sampler, Sampling
from contextual_dropout.nn.site import ContextualDropout, masked
from contextual_dropout.nn.stop_gradient import Gate
from contextual_dropout.replay.buffers import Surroundings, normalisation_buffers, stateful_buffers
from contextual_dropout.replay.generators import RandomState
from contextual_dropout.replay.tensors import MEMORY, copied, storage_of, version

__all__ = ["BatchNormCall", "Draw", "Fork", "Mutation", "Recording", "Sampler", "Watch"]

#: The options of :func:`torch.utils.checkpoint.checkpoint` itself.
_CHECKPOINT_OPTIONS = ("context_fn", "debug", "determinism_check", "early_stop", "preserve_rng_state", "use_reentrant")


@dataclass(eq=False, slots=True)
class Draw:
    """One random call of one site.

    Attributes:
        site: the site that was called; a site called twice in a pass has two draws.
        logits: natural logits t * alpha (B, C), attached to the encoder's graph; (B, ..., C) of a position-wise site.
        noise: the uniforms pi or normals eps behind the mask, like the logits.
        sampled: z, like the logits, attached to them where the family is pathwise.
        mask: the same values as the network uses them, behind the gate of the pass.
        compiled: whether it happened in compiled code, whose gates stay as they were.
        prior_logit: eta, a scalar, read inside the site's forward: a sharded parameter is whole only there.
    """

    site: ContextualDropout
    logits: Tensor
    noise: Tensor
    sampled: Tensor
    mask: Tensor
    compiled: bool = False
    prior_logit: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.prior_logit = self.site.prior_logit.sum()

    @property
    def family(self) -> families.Family:
        """The site's family."""
        return self.site.family


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
        """The identity of the layer that made the call."""
        return id(self.running_mean), id(self.weight)


class BatchStatistics:
    """Variance and mean over the batch that a normalisation saw, computed when first asked for."""

    def __init__(self, batch: Tensor) -> None:
        self._batch, self._version = batch.detach(), version(batch)

    @cached_property
    def variance_and_mean(self) -> tuple[Tensor, Tensor] | None:
        """The biased variance and the mean, (C,) each, at least in single precision; None if the batch has changed."""
        batch = self._batch
        if version(batch) != self._version:
            return None
        batch = batch.float() if batch.dtype in (torch.float16, torch.bfloat16) else batch
        return torch.var_mean(batch, [axis for axis in range(batch.ndim) if axis != 1], correction=0)

    def settle(self) -> None:
        """Compute the statistics now and release the batch."""
        _ = self.variance_and_mean
        self._batch = torch.empty(0)


class Mutation(NamedTuple):
    """A tensor that was changed in place.

    Attributes:
        position: how many calls came before.
        tensor: what was changed.
        foreign: whether it was made outside of the pass.
    """

    position: int
    tensor: Tensor
    foreign: bool


@dataclass(eq=False, slots=True)
class Fork:
    """The moment of a draw.

    Attributes:
        position: how many calls came before it.
        features: what the site was given.
        live: the results of earlier calls that the user's code still held, by position.
        versions: every tensor that a suffix may read, with its version at that moment.
        after: the generators just after the draw.
    """

    position: int
    features: Tensor
    live: dict[int, Tensor]
    versions: list[tuple[Tensor, int]]
    after: RandomState

    def intact(self, mutations: list[Mutation]) -> bool:
        """Whether nothing that a suffix may read has been changed in place since."""
        if any(version(tensor) != noted for tensor, noted in self.versions):
            return False
        later = {storage_of(mutation.tensor) for mutation in mutations if mutation.position >= self.position}
        return not later or not any(storage_of(tensor) in later for tensor, _ in self.versions)


@dataclass(frozen=True)
class Watch:
    """The things that a recording keeps.

    Attributes:
        rerunnable: keep what any rerun needs: batch statistics, buffers, generators.
        replayable: keep what a replay needs besides: the calls.
        repeatable: keep the generators, for one more pass with the same noise.
    """

    rerunnable: bool
    replayable: bool
    repeatable: bool = False


class Recording(TorchFunctionMode):
    """Watches a pass.

    Args:
        model: the network; its buffers may be changed by this pass, but not by a rerun.
        sampler: turns the sites' noise into masks in this pass.
        watch: what to keep.

    Attributes:
        draws: the sites' random calls, in call order.
        forks: for each draw, from where the pass can be run again.
        encoder_gate: see :mod:`contextual_dropout.nn.stop_gradient`; closed unless an estimator opens it.
        mask_gate: whether gradients flow from the network into pathwise masks.
        calls: what was called and what it returned (tensors as weak references).
        norms: the batch statistics of each normalisation layer's calls.
        mutations: what was changed in place.
        below: whether a tensor's memory was handed out, where changes in place go unseen.
        before: what surrounded the pass at its start, and torch's generators then.
    """

    def __init__(self, model: nn.Module, sampler: Sampler, watch: Watch) -> None:
        super().__init__()
        self.draws: list[Draw] = []
        self.forks: list[Fork] = []
        self.encoder_gate = Gate(open=False)
        self.mask_gate = Gate(open=True)
        self.calls: list[tuple[Any, Any]] = []
        self.norms: dict[tuple[int, int], list[BatchStatistics]] = defaultdict(list)
        self.mutations: list[Mutation] = []
        self.below = False
        self.watch = watch
        self.device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self.model = model
        self.sampling = Sampling(sampler)
        self._candidates: list[tuple[int, weakref.ref[Tensor]]] = []
        self._held: list[Tensor] = []
        self._made: set[int] = set()
        if watch.rerunnable or watch.repeatable:
            self._buffers = stateful_buffers(model.modules())
            self.before, self.generators_before = Surroundings(self._buffers), RandomState(self.device)

    def name_of(self, site: ContextualDropout) -> str:
        """The name of a site in the model."""
        names = (name for name, module in self.model.named_modules() if module is site)
        return next(names, "(not part of the model)") or "(the model itself)"

    @cached_property
    def after(self) -> Surroundings:
        """The surroundings of the pass at its end; ask for them before anything else is run."""
        return Surroundings(self._buffers)

    @cached_property
    def disturbed(self) -> bool:
        """Whether the pass changed a buffer, other than those of normalisation layers."""
        return not self.before.buffers.unchanged()

    @cached_property
    def norm_buffers(self) -> frozenset[int]:
        """The ids of the buffers of normalisation layers."""
        return normalisation_buffers(self.model)

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is masked:
            return self._visit(*args)
        if func is checkpoint:
            return self._checkpointed(*args, **kwargs)
        if not self.watch.rerunnable:
            return func(*args, **kwargs)
        self.below = self.below or func in MEMORY
        if func is F.batch_norm and (call := BatchNormCall(*args, **kwargs)).training:
            self.norms[call.layer].append(statistics := BatchStatistics(call.input))
            if not self.watch.replayable:  # to save memory, activations are not held for this
                statistics.settle()
        target = kwargs.get("out", args[0] if args else None)
        if not isinstance(target, Tensor):
            return self._remember(func, func(*args, **kwargs))
        before, memory = version(target), storage_of(target)
        out = func(*args, **kwargs)
        if version(target) != before:
            foreign = memory not in self._made
            self.mutations.append(Mutation(len(self.calls), target, foreign))
            if foreign:
                self.calls.append((func, out))
                return out
        return self._remember(func, out, memory)

    def _visit(self, site: ContextualDropout, u: Tensor, context: Tensor | None = None) -> Tensor:
        try:
            logits = site.logits(u, context, self.encoder_gate)
        except ValueError as error:
            raise ValueError(f"site {self.name_of(site)!r}: {error}") from None
        noise = site.family.noise(logits)
        sampled = self.sampling.sampler(site.family, logits, noise)
        compiled = torch.compiler.is_dynamo_compiling()
        draw = Draw(site, logits, noise, sampled, self.mask_gate(sampled), compiled)
        if not compiled:
            self.sampling.note(noise)
        self.draws.append(draw)
        if not self.watch.rerunnable:
            return site.apply_mask(u, draw.mask)
        self.forks.append(self._fork(u))
        out = site.apply_mask(u, draw.mask)
        self._remember(masked, out)
        return out

    def _checkpointed(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a checkpointed part of compiled code without the checkpoint, which would lose its draws."""
        with self:
            return function(*args, **{name: kwargs[name] for name in kwargs if name not in _CHECKPOINT_OPTIONS})

    def _remember(self, func: Any, out: Any, source: int = 0) -> Any:
        """Note a call and return its result; ``source`` is the memory that it may only be a view of."""
        position = len(self.calls)
        if isinstance(out, Tensor):
            reference = weakref.ref(out)
            if (memory := storage_of(out)) != source:
                self._made.add(memory)
            self._candidates.append((position, reference))
            self.calls.append((func, reference))
        else:
            self.calls.append((func, copied(out)))
            if isinstance(out, tuple | list | dict):
                self._held.extend(_tensors(out))
                self._made.update({storage_of(tensor) for tensor in _tensors(out)} - {source})
        return out

    def _fork(self, u: Tensor) -> Fork:
        live: dict[int, Tensor] = {}
        if self.watch.replayable:
            for position, reference in self._candidates:
                if (tensor := reference()) is not None:
                    live[position] = tensor
            self._candidates = [(position, reference) for position, reference in self._candidates if position in live]
        versions = [(tensor, version(tensor)) for tensor in (u, *live.values(), *self._held)]
        return Fork(len(self.calls), u, live, versions, RandomState(self.device))


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
