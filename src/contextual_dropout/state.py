"""The state around a pass that running it again must find as it was and leave as it is."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

__all__ = ["BufferState", "HostRandomState", "RandomState", "normalisation_buffers"]


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


class HostRandomState:
    """The state of Python's and NumPy's global generators: some networks skip layers by them."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()  # noqa: NPY002

    def restore(self) -> None:
        """Put the generators back to this state."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002


class BufferState:
    """The buffers of a model, but for those of normalisation layers, which a rerun neither reads nor writes."""

    def __init__(self, model: nn.Module) -> None:
        self._entries = [(module, name, buffer, buffer.detach().clone()) for module, name, buffer in _buffers(model)]

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


def normalisation_buffers(model: nn.Module) -> frozenset[int]:
    """The ids of the buffers of batch and instance normalisation layers."""
    layers = (module for module in model.modules() if isinstance(module, _NormBase))
    return frozenset(id(buffer) for layer in layers for buffer in layer.buffers(recurse=False))


def _buffers(model: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for module in model.modules():
        if not isinstance(module, _NormBase):
            yield from ((module, name, buffer) for name, buffer in module.named_buffers(recurse=False))
