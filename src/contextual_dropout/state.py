"""The state around a pass that running it again must find as it was and leave as it is."""

from __future__ import annotations

import ctypes
import pickle
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

__all__ = [
    "BufferState",
    "NumpyState",
    "RandomState",
    "Surroundings",
    "all_buffers",
    "normalisation_buffers",
    "stateful_buffers",
]


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


class NumpyState:
    """The state of numpy's global generator.

    To copy it takes numpy longer (40 microseconds) than a small network takes for a pass, and most networks have no
    use for it. So it is only compared, as bytes in memory, and copied when it has moved since the last copy.

    Attributes:
        spare: whether a normal number is kept for later, which can be drawn without a move.
    """

    _copied: tuple[bytes, dict[str, Any]] = b"", {}

    def __init__(self) -> None:
        self._generator = get_bit_generator()
        self._bytes = _bytes(self._generator)
        last, self._state = NumpyState._copied
        if last != self._bytes or self._state["has_gauss"]:
            self._state = np.random.get_state(legacy=False)  # noqa: NPY002  # the legacy generator is our subject
            NumpyState._copied = self._bytes, self._state
        self.spare = bool(self._state["has_gauss"])

    def moved(self) -> bool:
        """Whether numbers have been drawn since, but for a spare one."""
        return get_bit_generator() is not self._generator or _bytes(self._generator) != self._bytes

    def restore(self) -> None:
        """Put the generator back to this state."""
        set_bit_generator(self._generator)  # forgets a spare number
        if self.spare or _bytes(self._generator) != self._bytes:
            np.random.set_state(self._state)  # noqa: NPY002


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
    """What a pass can change besides torch's generators: buffers, and the generators of Python (some networks skip
    layers by it) and numpy.
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
    """All other buffers, as owner and name: a rerun neither reads nor writes those of normalisation layers."""
    return all_buffers(module for module in modules if not isinstance(module, _NormBase))


def all_buffers(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, str]]:
    """Buffers as owner and name."""
    return [(module, name) for module in modules for name, buffer in module._buffers.items() if buffer is not None]


def _bytes(generator: np.random.BitGenerator) -> bytes:
    """The state of a generator; of numpy's usual one straight from memory, where 624 words and a position are."""
    if type(generator) is np.random.MT19937:
        return ctypes.string_at(generator.ctypes.state_address, 625 * 4)
    return pickle.dumps(generator.state)
