"""The state around a pass that running it again must find as it was and leave as it is."""

from __future__ import annotations

import random
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

__all__ = ["BufferState", "RandomState", "Surroundings", "normalisation_buffers", "stateful_buffers"]


class RandomState:
    """The state of torch's generators that a pass on ``device`` draws from."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._cpu = torch.get_rng_state()
        self._accelerator = None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)

    def restore(self) -> None:
        """Put the generators back to this state."""
        torch.set_rng_state(self._cpu)
        if self._accelerator is not None:
            torch.get_device_module(self.device).set_rng_state(self._accelerator, self.device)


class BufferState:
    """The values of buffers.

    Args:
        owners: the modules that have them, and their names there; see :func:`stateful_buffers`.
    """

    def __init__(self, owners: list[tuple[nn.Module, str]]) -> None:
        buffers = ((module, name, getattr(module, name)) for module, name in owners)
        self._entries = [(module, name, buffer, buffer.detach().clone()) for module, name, buffer in buffers]

    def unchanged(self) -> bool:
        """Whether every buffer has still the same values."""
        return all(torch.equal(getattr(module, name), value) for module, name, _, value in self._entries)

    def restore(self) -> None:
        """Put objects and values back; through ``.data``, as autograd would take it for a change of what it saved."""
        for module, name, buffer, value in self._entries:
            if not isinstance(module, torch.jit.ScriptModule):
                module._buffers[name] = buffer
            if not torch.equal(buffer, value):
                buffer.data.copy_(value)


class Surroundings:
    """What a pass can change besides torch's generators: buffers, and Python's generator (some networks skip layers
    by it).
    """

    def __init__(self, owners: list[tuple[nn.Module, str]]) -> None:
        self.buffers = BufferState(owners)
        self._python = random.getstate()

    def restore_generator(self) -> None:
        """Put Python's generator back."""
        random.setstate(self._python)

    def restore(self) -> None:
        """Put everything back."""
        self.restore_generator()
        self.buffers.restore()


def normalisation_buffers(model: nn.Module) -> frozenset[int]:
    """The ids of the buffers of batch and instance normalisation layers."""
    layers = (module for module in model.modules() if isinstance(module, _NormBase))
    return frozenset(id(buffer) for layer in layers for buffer in layer.buffers(recurse=False))


def stateful_buffers(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, str]]:
    """All other buffers, as owner and name: a rerun neither reads nor writes those of normalisation layers."""
    others = (module for module in modules if not isinstance(module, _NormBase))
    return [(module, name) for module in others for name, buffer in module._buffers.items() if buffer is not None]
