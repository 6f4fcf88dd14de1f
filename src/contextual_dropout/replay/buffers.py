"""The state around a pass, which a rerun must find as it was and leave as it is: buffers and host generators."""

from __future__ import annotations

import random
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from contextual_dropout.replay.generators import NumpyState

__all__ = ["BufferState", "Surroundings", "all_buffers", "normalisation_buffers", "stateful_buffers"]


class BufferState:
    """The values of buffers.

    Args:
        owners: the modules that own them, and their names there; see :func:`stateful_buffers`.
    """

    def __init__(self, owners: list[tuple[nn.Module, str]]) -> None:
        buffers = ((module, name, getattr(module, name)) for module, name in owners)
        self._entries = [(module, name, buffer, buffer.detach().clone()) for module, name, buffer in buffers]

    def unchanged(self) -> bool:
        """Whether every buffer still has the same values."""
        return all(torch.equal(getattr(module, name), value) for module, name, _, value in self._entries)

    def restore(self) -> None:
        """Put objects and values back; through ``.data``, as autograd would take it for a change of what it saved."""
        for module, name, buffer, value in self._entries:
            if not isinstance(module, torch.jit.ScriptModule):
                module._buffers[name] = buffer
            if not torch.equal(buffer, value):
                buffer.data.copy_(value)


class Surroundings:
    """Buffers, and the generators of Python (by which some networks skip layers) and numpy: all that a pass can change
    besides torch's generators.
    """

    def __init__(self, owners: list[tuple[nn.Module, str]]) -> None:
        self.buffers = BufferState(owners)
        self._python, self._numpy = random.getstate(), NumpyState()

    def restore_generators(self) -> None:
        """Put Python's and numpy's generators back."""
        random.setstate(self._python)
        self._numpy.restore()

    def restore(self) -> None:
        """Put everything back."""
        self.restore_generators()
        self.buffers.restore()


def normalisation_buffers(model: nn.Module) -> frozenset[int]:
    """The ids of the buffers of batch and instance normalisation layers."""
    layers = (module for module in model.modules() if isinstance(module, _NormBase))
    return frozenset(id(buffer) for layer in layers for buffer in layer.buffers(recurse=False))


def stateful_buffers(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, str]]:
    """All buffers except those of normalisation layers, which a rerun does not use, as owner and name."""
    return all_buffers(module for module in modules if not isinstance(module, _NormBase))


def all_buffers(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, str]]:
    """All buffers, as owner and name."""
    return [(module, name) for module in modules for name, buffer in module._buffers.items() if buffer is not None]
