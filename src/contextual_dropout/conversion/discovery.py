"""Running a plain network on an example to find where it calls dropout as a function and how wide its layers are."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from contextual_dropout.conversion.calls import CallSearch, ModuleCalls
from contextual_dropout.conversion.features import LayerBefore
from contextual_dropout.conversion.placement import After, InPlaceOf
from contextual_dropout.conversion.plan import Item
from contextual_dropout.replay.buffers import BufferState, all_buffers
from contextual_dropout.replay.compilation import eagerly
from contextual_dropout.replay.generators import preserved

__all__ = [
    "Inputs",
    "Shape",
    "arguments_of",
    "buffers_kept",
    "find_calls",
    "find_inputs",
    "initialised_buffers",
    "plainly",
]

Shape = tuple[int, ...]
#: The shapes of inputs, each with the axis of its features where the layer before tells it.
Inputs = list[tuple[Shape, int | None]]


def find_calls(model: nn.Module, example: Any) -> dict[nn.Module, ModuleCalls] | None:
    """Find the modules that call dropout as a function, and their calls; None without an example."""
    if example is None:
        return None
    search = CallSearch()
    with plainly(model), search:
        _run(model, example)
    return search.result()


def find_inputs(
    model: nn.Module, example: Any, items: list[Item], found: dict[nn.Module, ModuleCalls] | None
) -> dict[nn.Module, Inputs]:
    """Find what a site at each of the modules would mask, and add this second pass to the calls in ``found``."""
    inputs: dict[nn.Module, Inputs] = defaultdict(list)
    if found is None:
        return inputs
    times: Counter[nn.Module] = Counter()
    before = LayerBefore()
    hooks = [module.register_forward_pre_hook(partial(_count, times)) for module in found] + before.watch(model)
    for item in items:
        if item.placement is InPlaceOf:
            hooks.append(item.module.register_forward_pre_hook(partial(_note_input, inputs, before), with_kwargs=True))
        elif item.placement is After:
            hooks.append(item.module.register_forward_hook(partial(_note_output, inputs, before)))
    search = CallSearch()
    try:
        with plainly(model), search:
            _run(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    for module, again in search.result().items():
        found.get(module, ModuleCalls()).runs.extend(again.runs)
    for module, calls in found.items():
        calls.times = 2 * times[module]
    return inputs


def arguments_of(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and keywords of the call that an example describes; tensors are copies, in which it may write."""
    example = tree_map_only(Tensor, Tensor.clone, dict(example) if isinstance(example, Mapping) else example)
    if isinstance(example, dict):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


def _run(model: nn.Module, example: Any) -> None:
    arguments, keywords = arguments_of(example)
    model(*arguments, **keywords)


def initialised_buffers(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """The buffers that have values, as owner and name."""
    buffers = ((owner, name, getattr(owner, name)) for owner, name in all_buffers(model.modules()))
    return [(owner, name) for owner, name, buffer in buffers if not (is_lazy(buffer) or buffer.is_meta)]


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Put all buffers back at the end: an example is not data to learn statistics from."""
    state = BufferState(initialised_buffers(model))
    try:
        yield
    finally:
        state.restore()


@contextmanager
def plainly(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode, without autograd and fused paths; restore modes and generators at the end."""
    modes = {module: module.training for module in model.modules()}
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        devices = {parameter.device for parameter in model.parameters()}
        with eagerly(), preserved(devices), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user sees them when the model runs in earnest
            for module in modes:
                module.training = False
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for module, mode in modes.items():
            module.training = mode


def _count(times: Counter[nn.Module], module: nn.Module, args: tuple[Any, ...]) -> None:
    times[module] += 1


def _note_input(
    inputs: dict[nn.Module, Inputs],
    before: LayerBefore,
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    _note(inputs[module], before, (*args, *kwargs.values()))


def _note_output(
    inputs: dict[nn.Module, Inputs], before: LayerBefore, module: nn.Module, args: tuple[Any, ...], output: Any
) -> None:
    _note(inputs[module], before, output if isinstance(output, tuple) else (output,))


def _note(inputs: Inputs, before: LayerBefore, values: Iterable[Any]) -> None:
    first = next(iter(values), None)
    if isinstance(first, Tensor) and first.ndim:
        inputs.append((tuple(first.shape), before.axis(first)))
