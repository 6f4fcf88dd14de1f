"""Restoring a model exactly if a change of it fails."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from contextual_dropout.replay.buffers import BufferState, all_buffers

__all__ = ["unchanged_on_error"]

#: The attribute in which configurations of ``transformers`` keep the name of the attention of their models.
IMPLEMENTATION = "_attn_implementation_internal"


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[None]:
    """Leave the model as it was if anything ends the block early: all or nothing.

    Classes, attributes, submodules, hooks and modes of all modules are put back, and the values of buffers, which a
    pass can change; values of parameters are not looked at.
    """
    modules = list(model.modules())
    before = [(module, type(module), _attributes(module)) for module in modules]
    configurations = _configurations(modules)
    buffers = BufferState([(owner, name) for owner, name in all_buffers(modules) if not is_lazy(getattr(owner, name))])
    try:
        yield
    except BaseException:
        for module, kind, attributes in before:
            _restore(module, kind, attributes)
        for configuration, implementation in configurations:
            vars(configuration)[IMPLEMENTATION] = implementation
        buffers.restore()
        raise


def _attributes(module: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Each attribute with its content, if it is a dictionary (of submodules or hooks, for instance)."""
    plain = (dict, OrderedDict)
    return {name: (value, dict(value) if type(value) in plain else None) for name, value in vars(module).items()}


def _restore(module: nn.Module, kind: type[nn.Module], attributes: dict[str, tuple[Any, Any]]) -> None:
    module.__class__ = kind
    vars(module).clear()
    for name, (value, held) in attributes.items():
        vars(module)[name] = value
        if held is not None:
            value.clear()
            value.update(held)


def _configurations(modules: list[nn.Module]) -> list[tuple[Any, Any]]:
    found = {id(each): each for each in (getattr(module, "config", None) for module in modules)}
    attributes = [(each, getattr(each, "__dict__", {})) for each in found.values()]
    return [(each, held[IMPLEMENTATION]) for each, held in attributes if IMPLEMENTATION in held]
