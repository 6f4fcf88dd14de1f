"""Drawing random numbers and leaving every global generator as it was."""

from __future__ import annotations

import ctypes
import operator
import pickle
import random
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from torch import Tensor

__all__ = [
    "ONE_AT_A_TIME",
    "HostDraws",
    "NumpyState",
    "RandomState",
    "Stream",
    "isolated",
    "preserved",
    "rng_reader",
    "seed_from",
    "seed_of",
]

#: All threads share the global generators, so that those that put them back wait for one another.
ONE_AT_A_TIME = threading.RLock()

#: Reads the state of the generators of torch that a pass draws from.
Reader = Callable[[], list[bytes]]


def seed_from(seed: int | None, generator: torch.Generator | None) -> int:
    """The seed that the caller's ``seed`` or ``generator`` gives; by default fresh entropy.

    Example:
        >>> seed_from(3, None)
        3
        >>> a, b = (seed_from(None, torch.Generator().manual_seed(0)) for _ in range(2))
        >>> a == b
        True
    """
    if seed is not None and generator is not None:
        raise ValueError("give seed or generator, not both: a generator already says which numbers are drawn")
    if generator is not None:
        if not isinstance(generator, torch.Generator):
            raise TypeError(f"generator must be a torch.Generator, got {generator!r}; a number is a seed")
        if generator.device.type != "cpu":
            raise ValueError(f"generator must be on the CPU (it only seeds the passes), got {generator.device}")
        return int(torch.randint(2**63 - 1, (), generator=generator))
    if seed is not None and not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    return secrets.randbits(63) if seed is None else operator.index(seed)


def seed_of(seed: int, index: int) -> int:
    """The seed of part ``index`` (a batch, a member) of a run with ``seed``: unlike ``seed + index`` no two share one.

    Example:
        >>> seed_of(0, 1) == seed_of(1, 0)
        False
    """
    state = np.random.SeedSequence((seed % 2**64, index)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def rng_reader(devices: Iterable[torch.device]) -> Reader:
    """Make a function that reads the states of torch's default generators on the CPU and on ``devices``."""
    readers = [partial(torch.get_device_module(device).get_rng_state, device) for device in _accelerators(devices)]
    # As bytes, five kilobytes are compared quickly, and out of sight of torch.vmap.
    return lambda: [_bytes(torch.get_rng_state()), *(_bytes(read()) for read in readers)]


@contextmanager
def preserved(devices: Iterable[torch.device] = ()) -> Iterator[None]:
    """Put torch's generators (on the CPU and on ``devices``), Python's and numpy's back at the end.

    Example:
        >>> before = torch.get_rng_state()
        >>> with preserved():
        ...     _ = torch.rand(3)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """
    with ONE_AT_A_TIME, _torch_preserved(devices), _host_preserved():
        yield


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
        self._bytes = _numpy_bytes(self._generator)
        last, self._state = NumpyState._copied
        if last != self._bytes or self._state["has_gauss"]:
            self._state = np.random.get_state(legacy=False)  # noqa: NPY002  # this class is about the legacy generator
            NumpyState._copied = self._bytes, self._state
        self.spare = bool(self._state["has_gauss"])

    def moved(self) -> bool:
        """Whether numbers have been drawn since, apart from a spare one."""
        return get_bit_generator() is not self._generator or _numpy_bytes(self._generator) != self._bytes

    def restore(self) -> None:
        """Put the generator back to this state."""
        set_bit_generator(self._generator)  # forgets a spare number
        if self.spare or _numpy_bytes(self._generator) != self._bytes:
            np.random.set_state(self._state)  # noqa: NPY002


class Stream:
    """Random numbers apart from the global ones on the CPU, which start from the present state of these.

    Example:
        >>> stream, before = Stream(), torch.get_rng_state()
        >>> with stream.drawn():
        ...     _ = torch.rand(3)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """

    def __init__(self) -> None:
        self._keep()

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Let torch, Python and numpy draw from this stream inside."""
        with preserved():
            self._torch.restore()
            self._numpy.restore()
            random.setstate(self._python)
            try:
                yield
            finally:
                self._keep()

    def _keep(self) -> None:
        self._torch, self._numpy, self._python = RandomState(torch.device("cpu")), NumpyState(), random.getstate()


@contextmanager
def isolated(seed: int, devices: Iterable[torch.device]) -> Iterator[None]:
    """Start torch's generators from ``seed`` inside, and put them back afterwards."""
    devices = _accelerators(devices)
    with ONE_AT_A_TIME, _torch_preserved(devices):
        # Not torch.manual_seed: it would seed every accelerator of the machine, and we restore only our own.
        torch.default_generator.manual_seed(seed)
        for device in devices:
            state = torch.Generator(device).manual_seed(seed).get_state()
            torch.get_device_module(device).set_rng_state(state, device)
        yield


@contextmanager
def _torch_preserved(devices: Iterable[torch.device]) -> Iterator[None]:
    accelerators = _accelerators(devices)
    cpu = torch.get_rng_state()
    states = [torch.get_device_module(device).get_rng_state(device) for device in accelerators]
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        for device, state in zip(accelerators, states, strict=True):
            torch.get_device_module(device).set_rng_state(state, device)


@contextmanager
def _host_preserved() -> Iterator[None]:
    python, numpy = random.getstate(), NumpyState()
    try:
        yield
    finally:
        random.setstate(python)
        numpy.restore()


class HostDraws:
    """Detects whether a pass drew from Python's or numpy's global generator, by which some networks skip layers.

    Such a draw is an ordinary number that all samples of a batched pass, and all replays of a prefix, would
    share. A context, after which both generators are as before: inside, Python's starts from ``seed``, and numpy's once
    that is known to matter.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._outside = _host_preserved()

    def __enter__(self) -> HostDraws:
        self._outside.__enter__()
        random.seed(self._seed)
        self._first = random.random()
        random.seed(self._seed)
        self._numpy = NumpyState()
        if self._numpy.spare:
            self.restart()
        return self

    def __exit__(self, *error: Any) -> None:
        self._outside.__exit__(*error)

    def restart(self) -> None:
        """Start both generators from the seed, and forget earlier draws."""
        random.seed(self._seed)
        set_bit_generator(np.random.MT19937(self._seed % 2**64))
        self._numpy = NumpyState()

    def happened(self) -> bool:
        """Whether there were any draws since the beginning."""
        if random.random() != self._first or self._numpy.moved():
            return True
        random.seed(self._seed)  # the number drawn by this check is to be drawn again
        return False


def _accelerators(devices: Iterable[torch.device]) -> list[torch.device]:
    return [device for device in dict.fromkeys(devices) if device.type not in ("cpu", "meta")]


def _bytes(state: Tensor) -> bytes:
    return state.numpy().tobytes()


def _numpy_bytes(generator: np.random.BitGenerator) -> bytes:
    """The state of a generator; that of numpy's usual one straight from memory, as 624 words and a position."""
    if type(generator) is np.random.MT19937:
        return ctypes.string_at(generator.ctypes.state_address, 625 * 4)
    return pickle.dumps(generator.state)
