"""Running K passes: the prefix once, then several samples at a time where that pays and works.

=========== ================================================= ==================================================
way         what it does                                      when
=========== ================================================= ==================================================
folded      k samples of B examples as k B examples           chains of layers that are known to treat each row
                                                              by itself: :mod:`contextual_dropout.prediction.folding`
batched     ``torch.vmap`` over the samples of a chunk        otherwise, if several samples fit into ``rows``
looped      one sample after another                          otherwise, and where vmap cannot follow the network,
                                                              or torch is one whose vmap we do not know
plain       whole passes                                      compiled networks, and those whose passes differ in
                                                              more than torch's random numbers
=========== ================================================= ==================================================

All but the last compute everything before the first random call once: see :mod:`contextual_dropout.prediction.prefix`.

The first pass is computed as it is and watched, which shows whether passes differ in random numbers alone. They do not
if it drew from another generator than torch's (Python's, numpy's, one of the model's own), if anything that it made is
still in use when it is over, if it changed what the model holds
(:mod:`contextual_dropout.replay.own_state`) or a tensor that is neither a buffer nor an input, or if it reached for a
tensor's memory (``.data``, ``.numpy()``): then all passes are plain. If a later pass gives torch other numbers than the
first did, so are all from that one on. Two things go undetected: a counter, and a generator that decides on rare
branches, in a file that defines no class of the model.

``rows`` is the number of examples times samples that one pass computes. Many small passes waste time in calling
torch, large ones fall out of the processor's cache: see :data:`ROWS`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from contextual_dropout.nn.functional_dropout import SAMPLED
from contextual_dropout.prediction import vmapped
from contextual_dropout.prediction.folding import FoldedChain, folded
from contextual_dropout.prediction.outputs import find_logits
from contextual_dropout.prediction.prefix import SharedPrefix
from contextual_dropout.replay.buffers import BufferState, all_buffers
from contextual_dropout.replay.generators import HostDraws, RandomState, Reader, rng_reader
from contextual_dropout.replay.own_state import OwnState
from contextual_dropout.replay.tensors import NotRepeatable

__all__ = ["ROWS", "Passes", "run_passes"]

#: Examples times samples in one pass. On a CPU (measured with K = 20, one thread) 64 to 256 rows are best for small
#: convolutional networks and perceptrons alike. To fold even two samples pays; to batch fewer than eight is not worth
#: vmap's overhead where convolutions dominate: so up to 16 examples are batched, larger batches looped.
ROWS = 128
FEWEST_SAMPLES = 8
ACCELERATOR_ROWS = 4096


class Passes:
    """A model with its inputs, ready to be run many times.

    Every pass finds the same inputs and buffers, whatever the passes before it did to them, and the caller's own
    tensors are never changed.

    Args:
        model: an ``nn.Module`` or any callable.
        inputs: its positional arguments.
        keywords: its keyword arguments.
        pick: takes the tensor of interest out of what the model returns.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        pick: Callable[[Any], Tensor],
    ) -> None:
        self.model = model
        self.pick = pick
        self._one_leaf = not keywords and len(inputs) == 1 and isinstance(inputs[0], Tensor)
        self._given: list[Any] = list(inputs)
        self._structure: TreeSpec | None = None  # a single tensor has none
        if not self._one_leaf:
            self._given, self._structure = tree_flatten((inputs, keywords))
        self._buffers = BufferState(all_buffers(self.modules))
        self._take_copies()

    def __call__(self) -> Tensor:
        if self._structure is None:
            return self.pick(self.model(*self._copies))
        inputs, keywords = tree_unflatten(self._copies, self._structure)
        return self.pick(self.model(*inputs, **keywords))

    @property
    def only_input(self) -> Any:
        """The only argument of the model, if it is a tensor; else None."""
        return self._copies[0] if self._one_leaf else None

    def tensors(self) -> list[Tensor]:
        """The tensors among the model's arguments: copies of the caller's."""
        return self._tensors

    def buffers(self) -> list[Tensor]:
        """The model's buffers."""
        return [getattr(module, name) for module, name in all_buffers(self.modules)]

    def settled(self) -> bool:
        """Whether the model's buffers are as they were at first."""
        return self._buffers.unchanged()

    def renew(self) -> None:
        """Undo what a pass changed: take new copies of the inputs, put the buffers back."""
        self._take_copies()  # versions do not show whether they have changed: x.data.mul_(2) does not count
        self.put_back()

    def put_back(self) -> None:
        """Give the buffers the values that they had at first."""
        self._buffers.restore()

    def _take_copies(self) -> None:
        self._copies = [_copy(leaf) for leaf in self._given]
        self._tensors = [leaf for leaf in self._copies if isinstance(leaf, Tensor)]

    @property
    def below(self) -> bool:
        """Whether the model is given arrays, which it could change out of torch's sight."""
        return any(isinstance(leaf, np.ndarray) for leaf in self._copies)

    @property
    def others(self) -> list[Any]:
        """Objects that a pass could change besides modules and tensors: a plain function's own, and its arguments."""
        model = [] if isinstance(self.model, nn.Module) else [self.model]
        return [*model, *(leaf for leaf in self._copies if not isinstance(leaf, Tensor))]

    @cached_property
    def devices(self) -> list[torch.device]:
        """The devices of the model and of its inputs, in this order."""
        tensors = [p for module in self.modules for p in module._parameters.values() if p is not None]
        return list(dict.fromkeys(tensor.device for tensor in (*tensors, *self._tensors))) or [torch.device("cpu")]

    @property
    def batch(self) -> int:
        """B, the length of the first tensor among the inputs."""
        return next((len(tensor) for tensor in self._tensors if tensor.ndim), 1)

    @property
    def opaque(self) -> bool:
        """Whether a part of the model is compiled, where neither vmap nor a torch function mode should interfere."""
        if hasattr(self.model, "_torchdynamo_orig_callable"):
            return True
        return any(m._compiled_call_impl is not None or type(m).__name__ == "OptimizedModule" for m in self.modules)

    @property
    def lazy(self) -> bool:
        """Whether a layer waits for its first input to learn its size."""
        return any(isinstance(m, LazyModuleMixin) and m.has_uninitialized_params() for m in self.modules)

    @cached_property
    def modules(self) -> list[nn.Module]:
        """All modules of the model; none, if it is a plain function."""
        return list(self.model.modules()) if isinstance(self.model, nn.Module) else []


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def run_passes(passes: Passes, samples: int, rows: int | None, seed: int) -> Tensor:
    """The outputs of ``samples`` passes, (K, B, ...); a single one, (1, B, ...), where nothing is random.

    Call it with torch's generators isolated (:func:`contextual_dropout.replay.generators.isolated`).

    Args:
        passes: what to run.
        samples: K.
        rows: the most examples times samples in a pass; chosen by the device if None.
        seed: for Python's and numpy's generators.
    """
    try:
        if not passes.opaque and (chain := folded(passes.model, passes.only_input)) is not None:
            chunks = math.ceil(samples / _chunk(passes, rows, fewest=1))
            return _folded(passes, chain, _sizes(samples, chunks), seed)
    except Exception:
        passes.renew()  # not a chain for these inputs
    with HostDraws(seed) as host:
        return _watched(passes, samples, rows, host, rng_reader(passes.devices))


def _watched(passes: Passes, samples: int, rows: int | None, host: HostDraws, read: Reader) -> Tensor:
    """Run the passes of a network that may do anything: the first one shows what it does.

    What a network only sets up when it is first called (a cache, a flag) is there in its second pass: so that one is
    taken for the first, with the same random numbers, and a seed gives the same samples in every call.
    """
    start = [RandomState(device) for device in passes.devices]
    first = _FirstPass(passes, read)
    if first.set_up and samples > 1 and not host.happened():
        for state in start:
            state.restore()
        passes.renew()
        first = _FirstPass(passes, read)
    if host.happened():
        host.restart()
        return _plain(passes, samples)
    if not first.out.numel():  # nothing to draw masks for
        return first.out.expand(samples, *first.out.shape)
    if samples == 1 or not first.random:
        return first.out.unsqueeze(0)
    if first.shared is None or first.leaves_something or passes.below:
        rest = _plain(passes, samples - 1)
    else:
        rest = _shared(passes, first.shared, samples - 1, rows)
    return torch.cat([first.out.unsqueeze(0), rest])


class _FirstPass:
    """A first pass, and its findings.

    Attributes:
        out: (B, ...).
        shared: what later passes may share; None for a compiled network.
        random: whether it drew any random number.
        leaves_something: whether it left something behind that the next pass will find.
        set_up: whether that is something which had not been there before.
    """

    def __init__(self, passes: Passes, read: Reader) -> None:
        own, before = OwnState(passes.modules, passes.others), read()
        self.shared = None if passes.opaque else SharedPrefix(passes, read)
        self.out = _plain(passes, 1)[0] if self.shared is None else self.shared.first()
        drawn = read() != before or own.drew()
        self.random = drawn or (self.shared is not None and self.shared.random)
        self.leaves_something = own.changed() or (self.shared is not None and self.shared.whole)
        self.set_up = self.shared is not None and own.was_set_up()


def _shared(passes: Passes, shared: SharedPrefix, samples: int, rows: int | None) -> Tensor:
    """Run passes that differ from the first in random numbers alone."""
    chunks = math.ceil(samples / _chunk(passes, rows, FEWEST_SAMPLES))
    if chunks < samples and shared.splits and vmapped.AVAILABLE:
        try:
            return _batched(shared, _sizes(samples, chunks))
        except (NotRepeatable, Exception):
            passes.renew()  # vmap cannot do it; the loop can, or raises what is really wrong
    return _looped(shared, samples)


def _chunk(passes: Passes, rows: int | None, fewest: int) -> int:
    """The number of samples to compute at a time: one, or at least ``fewest``."""
    batch = max(1, passes.batch)
    if rows is not None:
        return max(1, rows // batch)
    if passes.devices[0].type != "cpu":
        return max(1, ACCELERATOR_ROWS // batch)
    return ROWS // batch if ROWS // batch >= fewest else 1


def _folded(passes: Passes, chain: FoldedChain, sizes: list[int], seed: int) -> Tensor:
    outs = [chain.run(size) for size in (sizes if chain.random else [1])]
    if passes.pick is find_logits:
        return outs[0] if len(outs) == 1 else torch.cat(outs)
    with HostDraws(seed) as host:  # the caller's own function may do anything
        host.restart()
        return torch.stack([passes.pick(sample) for out in outs for sample in out])


def _sizes(samples: int, chunks: int) -> list[int]:
    """The number of samples in each chunk."""
    return [samples // chunks + (index < samples % chunks) for index in range(chunks)]


def _batched(shared: SharedPrefix, sizes: list[int]) -> Tensor:
    def sample(spread: Tensor) -> Tensor:
        out = shared.run(spread)
        if not vmapped.is_batched(out):
            raise RuntimeError("the output is the same for all samples")  # the loop finds out why
        return out

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        outs = [torch.vmap(sample, randomness="different")(torch.zeros(size)) for size in sizes]
    return outs[0] if len(outs) == 1 else torch.cat(outs)


def _looped(shared: SharedPrefix, samples: int) -> Tensor:
    return torch.stack([shared.run() for _ in range(samples)])


def _plain(passes: Passes, samples: int) -> Tensor:
    outs = []
    for _ in range(samples):
        passes.renew()
        with SAMPLED:
            outs.append(passes())
    return torch.stack(outs)
