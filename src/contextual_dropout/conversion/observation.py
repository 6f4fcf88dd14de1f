"""Observing the inputs of a network's sites in a pass of the plain network, in which no site does anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from contextual_dropout.conversion.calls import SOFTMAX
from contextual_dropout.conversion.discovery import initialised_buffers
from contextual_dropout.conversion.example import Example
from contextual_dropout.conversion.features import LayerBefore
from contextual_dropout.nn.site import ContextualDropout
from contextual_dropout.replay.buffers import Surroundings
from contextual_dropout.replay.own_state import OwnState

__all__ = ["Observation", "Summary", "observe", "outputs"]

#: Maps a site and its input to what is kept of it, since inputs may be big.
Keep = Callable[[ContextualDropout, Tensor, Tensor | None], Any]


@dataclass(frozen=True)
class Summary:
    """The shape of a tensor, and projections that show whether entries of an axis have changed.

    Attributes:
        shape: of the tensor.
        entries: for each axis (size,): random projections of all other axes. Sums or norms would not do: those of
            normalised features and of attention weights are constant.
    """

    shape: tuple[int, ...]
    entries: tuple[Tensor, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Summary:
        """Summarise a tensor, in double precision."""
        precise = tensor.detach().to("cpu" if tensor.device.type == "mps" else tensor.device, torch.float64)
        precise = precise.nan_to_num()
        return cls(tuple(tensor.shape), tuple(_along(precise, axis).cpu() for axis in range(tensor.ndim)))


def _along(tensor: Tensor, axis: int) -> Tensor:
    """Project all axes but one."""
    entries = tensor.movedim(axis, 0)
    for place in range(entries.ndim - 1, 0, -1):
        entries = entries @ _direction(entries.shape[-1], place).to(entries)
    return entries


def _direction(size: int, place: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(place), dtype=torch.float64)


@dataclass
class Observation:
    """Notes on one pass.

    Attributes:
        calls: for each site what was kept of its calls, in their order.
        features: for each site the axis of the features in each call, where the layer before it tells that.
        outputs: summaries of the tensors that the network returned.
        sequences: the inputs of torch's own sequence layers, and the axis that these take for the samples'.
        attends: whether attention was seen, in which several positions look at one another.
        causal: whether some was seen in which no position looks at a later one.
    """

    calls: dict[ContextualDropout, list[Any]] = field(default_factory=dict)
    features: dict[ContextualDropout, list[int | None]] = field(default_factory=dict)
    outputs: list[Summary] = field(default_factory=list)
    sequences: list[tuple[Summary, int]] = field(default_factory=list)
    attends: bool = False
    causal: bool = False


def observe(model: nn.Module, example: Example, keep: Keep = lambda site, u, context: Summary.of(u)) -> Observation:
    """Run the network on an example; inside :func:`~contextual_dropout.conversion.discovery.plainly` only.

    Args:
        model: with sites, which hand their inputs on.
        example: what to call it with.
        keep: what to keep of a site's input and context.
    """
    seen, before = Observation(), LayerBefore()
    with ExitStack() as stack:
        for handle in before.watch(model):
            stack.callback(handle.remove)
        for module in model.modules():
            if isinstance(module, ContextualDropout):
                stack.enter_context(_handing_on(module, seen, keep, before))
            elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
                hook = module.register_forward_pre_hook(partial(_note_sequence, seen=seen), with_kwargs=True)
                stack.callback(hook.remove)
        stack.enter_context(_Attention(seen))
        seen.outputs = outputs(model, example)
    return seen


def outputs(model: nn.Module, example: Example) -> list[Summary]:
    """Run the network on an example as it is; every run starts from the same buffers and random numbers."""
    surroundings, own = Surroundings(initialised_buffers(model)), OwnState(list(model.modules()))
    torch.manual_seed(0)
    try:
        out = example.call(model)
    finally:
        surroundings.restore()
        own.restore_generators()
    return [Summary.of(leaf) for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.ndim > 0]


@contextmanager
def _handing_on(site: ContextualDropout, seen: Observation, keep: Keep, before: LayerBefore) -> Iterator[None]:
    """Let a site only note its input and return it, whatever its options and however it is called."""

    def forward(u: Tensor, context: Tensor | None = None) -> Tensor:
        seen.calls.setdefault(site, []).append(keep(site, u, context))
        seen.features.setdefault(site, []).append(before.axis(u))
        return u

    vars(site)["forward"] = forward
    try:
        yield
    finally:
        del vars(site)["forward"]


def _note_sequence(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, seen: Observation) -> None:
    given = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
    if given is not None and given.ndim == 3:
        seen.sequences.append((Summary.of(given), 0 if module.batch_first else 1))


class _Attention(TorchFunctionMode):
    """Notes whether attention is causal: by its softmaxed weights, zero for later keys, or by its mask where fused."""

    def __init__(self, seen: Observation) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func in SOFTMAX:
            self._note(out, is_lower_triangular(out))
        elif func is F.scaled_dot_product_attention:
            mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
            looks = mask if mask is None or mask.dtype is torch.bool else mask.exp()
            self._note(out, bool(kwargs.get("is_causal")) or (looks is not None and is_lower_triangular(looks)))
        return out

    def _note(self, out: Tensor, causal: bool) -> None:
        self.seen.attends |= out.ndim > 2 and out.shape[-2] > 1
        self.seen.causal |= causal


def is_lower_triangular(weights: Tensor) -> bool:
    """Whether no query, on the last axis but one, looks at a later key, and some look at an earlier one."""
    if weights.ndim < 2 or weights.shape[-1] != weights.shape[-2] or weights.shape[-1] < 2:
        return False
    weights = weights.nan_to_num()  # queries that may look at no key
    return not bool(weights.triu(1).any()) and bool(weights.tril(-1).any())
