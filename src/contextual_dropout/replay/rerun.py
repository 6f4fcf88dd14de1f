"""Running a pass again with another mask at one site: the pseudo passes.

Everything before the site, the *fork*, is not computed again: each call returns what it returned in the true
pass (*prefix replay*), so that a pseudo pass costs its suffix only, whatever the network's shape. Results that were no
longer in use at the fork are replaced by a placeholder that cannot be computed with.

Correct first: if a replay might be wrong (a tensor of the prefix or a buffer was changed in place later,
the code takes another path, a placeholder is touched), the whole pass is computed, from the buffers and generators
that the true pass found. If even that does not bring the site its logits again, there is an error.

A rerun leaves no trace: no autograd graph, no change of a buffer (batch normalisation uses the true pass's
batch statistics and updates none), and the random number generators are where they were.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from contextual_dropout.nn.families import Family
from contextual_dropout.nn.site import ContextualDropout, masked
from contextual_dropout.replay.distributed import without_buffer_broadcasts
from contextual_dropout.replay.generators import RandomState
from contextual_dropout.replay.recording import BatchNormCall, Draw, Recording, Sampler
from contextual_dropout.replay.tensors import NotRepeatable, copied, storage_of

__all__ = ["CommonNoise", "FreshNoise", "Noise", "rerun"]

_PLACEHOLDER = torch.empty(0, device="meta")
_INPLACE_OPERATORS = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}


class CommonNoise:
    """Noise of the true pass for later draws and for every other random call.

    The two passes of a difference may share their randomness without bias, and then differ only by what the
    fork's mask does: less variance than with the fresh uniforms of the paper's Algorithm 1.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._outside = RandomState(recording.device)

    def begin_prefix(self) -> None:
        """Prepare the generators for a prefix that is computed again."""
        self._recording.generators_before.restore()

    def after_draw(self, index: int) -> None:
        """Set the generators after draw ``index``, at the fork or later."""
        if index < len(self._recording.forks):
            self._recording.forks[index].after.restore()

    def draw(self, index: int, family: Family, logits: Tensor) -> Tensor:
        """The noise of draw ``index``; fresh where the rerun has taken another path than the true pass."""
        draws = self._recording.draws
        same = index < len(draws) and draws[index].family is family and draws[index].noise.shape == logits.shape
        return draws[index].noise if same else family.noise(logits)

    def end(self) -> None:
        """Put the generators back after the rerun."""
        self._outside.restore()


class FreshNoise:
    """Fresh noise from the fork on: an independent sample that shares the prefix."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._outside: RandomState | None = None

    def begin_prefix(self) -> None:
        """Prepare the generators for a prefix that is computed again."""
        self._outside = RandomState(self._recording.device)
        self._recording.generators_before.restore()

    def after_draw(self, index: int) -> None:
        """Set the generators after draw ``index``, at the fork or later."""
        if self._outside is not None:
            self._outside.restore()
            self._outside = None

    def draw(self, index: int, family: Family, logits: Tensor) -> Tensor:
        """Fresh noise for draw ``index``."""
        return family.noise(logits)

    def end(self) -> None:
        """Leave the generators where the rerun brought them."""


Noise = CommonNoise | FreshNoise


class Rerun(TorchFunctionMode):
    """A pass with another mask at draw ``fork``; see :func:`rerun` for the arguments."""

    def __init__(self, recording: Recording, fork: int, mask: Tensor, sampler: Sampler, noise: Noise) -> None:
        super().__init__()
        self.draws: list[Draw] = []
        self._recording = recording
        self._fork = fork
        self._mask = mask
        self._sampler = sampler
        self._noise = noise
        self._visits = 0
        self._norms: dict[tuple[int, int], int] = defaultdict(int)

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is masked:
            return self._visit(*args)
        if func is F.batch_norm and (call := BatchNormCall(*args, **kwargs)).training:
            return self._batch_norm(call)
        if func is F.instance_norm:
            return _instance_norm(*args, **kwargs)
        if _works_in_place(func, kwargs):
            target = kwargs.get("out", args[0] if args else None)
            if id(target) in self._recording.norm_buffers:
                return target
        return func(*args, **kwargs)

    def _visit(self, site: ContextualDropout, u: Tensor, context: Tensor | None = None) -> Tensor:
        index, self._visits = self._visits, self._visits + 1
        if index > self._fork:
            logits = site.logits(u, context)
            noise = self._noise.draw(index, site.family, logits)
            mask = self._sampler(site.family, logits, noise)
            draw = Draw(site, logits, noise, mask, mask)
        else:
            true = self._recording.draws[index]
            if true.site is not site:
                raise NotRepeatable
            if index < self._fork:
                self._recording.forks[index].after.restore()
                return site.apply_mask(u, true.mask)
            self._check_arrival(site, u, context)
            draw = Draw(site, true.logits.detach(), true.noise, self._mask, self._mask)
        self._noise.after_draw(index)
        self.draws.append(draw)
        return site.apply_mask(u, draw.mask)

    def _check_arrival(self, site: ContextualDropout, u: Tensor, context: Tensor | None) -> None:
        """Check that the pass, computed again, gives the fork the logits of the true pass, up to rounding."""
        logits, true = site.logits(u, context), self._recording.draws[self._fork].logits.detach()
        if logits.shape != true.shape or not torch.allclose(logits, true, rtol=1e-2, atol=1e-2):
            raise NotRepeatable

    def _batch_norm(self, call: BatchNormCall) -> Tensor:
        """Normalise with the statistics of the batch that the same call saw in the true pass."""
        occurrence, self._norms[call.layer] = self._norms[call.layer], self._norms[call.layer] + 1
        if occurrence >= len(self._recording.norms[call.layer]):
            raise NotRepeatable
        statistics = self._recording.norms[call.layer][occurrence].variance_and_mean
        if statistics is None:
            raise NotRepeatable
        variance, mean = statistics
        return F.batch_norm(call.input, mean, variance, call.weight, call.bias, False, call.momentum, call.eps)


class Replay(Rerun):
    """A rerun that answers every call before the fork from the recording."""

    def __init__(self, recording: Recording, *args: Any) -> None:
        super().__init__(recording, *args)
        self._position = 0
        self._target = recording.forks[self._fork]

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._position < self._target.position:
            return self._recall(func, args, kwargs or {})
        if not self.draws and func is not masked:
            raise NotRepeatable
        return super().__torch_function__(func, types, args, kwargs)

    def _check_arrival(self, site: ContextualDropout, u: Tensor, context: Tensor | None) -> None:
        """Check that the fork gets the very tensor of the true pass: code other than torch's may make another."""
        if u is not self._target.features:
            raise NotRepeatable

    def _recall(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorded, out = self._recording.calls[self._position]
        if recorded is not func and recorded != func:
            raise NotRepeatable
        if func is masked:
            self._visits += 1
        elif func is F.batch_norm and (call := BatchNormCall(*args, **kwargs)).training:
            self._norms[call.layer] += 1
        live = self._target.live.get(self._position)
        self._position += 1
        if live is not None:  # a new one if it is empty: older torch keeps such for activation checkpointing
            return live if live.numel() else torch.empty_like(live)
        return _PLACEHOLDER if isinstance(out, weakref.ref) else copied(out)


def rerun(
    recording: Recording,
    closure: Callable[[], Tensor],
    fork: int,
    mask: Tensor,
    sampler: Sampler,
    noise: Noise,
) -> tuple[Tensor, list[Draw]]:
    """Run ``closure`` again with ``mask`` at draw ``fork``.

    Args:
        recording: of the true pass of ``closure``.
        closure: the user's.
        fork: index of the draw; earlier draws keep their masks.
        mask: z (B, C) for that draw.
        sampler: turns the noise of later draws into masks.
        noise: the source of noise for later draws.

    Returns:
        The closure's value and the draws from ``fork`` on, without autograd.
    """
    foreign = [m.position for m in recording.mutations if m.foreign and id(m.tensor) not in recording.norm_buffers]
    target, after = recording.forks[fork], recording.after
    replayable = (
        recording.watch.replayable
        and target.intact(recording.mutations)
        and all(position < target.position for position in foreign)
        and not recording.disturbed
        and not recording.below
    )

    def attempt(kind: type[Rerun]) -> tuple[Tensor, list[Draw]]:
        run = kind(recording, fork, mask, sampler, noise)
        recording.before.restore_generators()
        try:
            with torch.no_grad(), without_buffer_broadcasts(recording.model), run:
                return closure(), run.draws
        finally:
            noise.end()
            after.restore()

    if replayable:
        try:
            value, draws = attempt(Replay)
            if value.device.type != "meta":
                return value, draws
        except (NotRepeatable, Exception):
            pass  # the whole pass is right, or raises what is really wrong
    if any(not _is_state(m.tensor, recording) for m in recording.mutations if m.foreign):
        raise RuntimeError(_MUTATION)
    recording.before.buffers.restore()
    noise.begin_prefix()
    try:
        return attempt(Rerun)
    except NotRepeatable:
        raise RuntimeError(_OTHER_PATH) from None


_MUTATION = (
    "the closure changes in place a tensor that it did not create (an input, for example), so that a pseudo pass "
    "would apply the change twice: clone the tensor inside the closure first"
)
_OTHER_PATH = (
    "run a second time, the closure did something else: it called its sites or batch normalisations in another order, "
    "gave a site other features, or changed in place what it had normalised; a pseudo pass needs a closure that does "
    "the same each time, so move what changes between calls (data loading, counters, generators of your own) out of it"
)


def _is_state(tensor: Tensor, recording: Recording) -> bool:
    """Whether a tensor is, or looks into, a buffer of the model."""
    memory = {storage_of(buffer) for buffer in recording.model.buffers()}
    return storage_of(tensor) in memory


def _works_in_place(func: Any, kwargs: dict[str, Any]) -> bool:
    name = getattr(func, "__name__", "")
    return name in _INPLACE_OPERATORS or "out" in kwargs or (name.endswith("_") and not name.endswith("__"))


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    *rest: Any,
    **kwargs: Any,
) -> Tensor:
    """Run an instance normalisation without updating the running statistics."""
    if use_input_stats:
        running_mean = running_var = None
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, *rest, **kwargs)
