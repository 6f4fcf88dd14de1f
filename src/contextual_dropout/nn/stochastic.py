"""Layers that sample: in training mode, and inside :func:`contextual_dropout.sampling`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.nn.dropout_flag import drops_by_flag
from contextual_dropout.nn.functional_dropout import SAMPLED

__all__ = ["Stochastic", "sampling", "sampling_among"]


class Stochastic(nn.Module):
    """A layer with random output of its own kind, which ``cd.sampling`` and ``cd.predict`` switch on.

    Derive from it to write a stochastic layer of your own: sample if :attr:`stochastic` is true, else return the point
    estimate.

    Attributes:
        sampling: set inside :func:`contextual_dropout.sampling`, where everything else is in eval mode.

    Example:
        >>> import torch, contextual_dropout as cd
        >>> class Jitter(Stochastic):
        ...     def forward(self, x):
        ...         return x + torch.randn_like(x) if self.stochastic else x
        >>> cd.predict(nn.Sequential(Jitter(), nn.Linear(4, 3)), torch.zeros(2, 4), samples=5).samples.shape
        torch.Size([5, 2, 3])
    """

    def __init__(self) -> None:
        super().__init__()
        self.sampling = False

    @property
    def stochastic(self) -> bool:
        """Whether a call samples."""
        return self.training or self.sampling


#: Modules of torch that do nothing in training mode but dropout of their own.
_DROPOUT = (_DropoutNd, nn.MultiheadAttention, nn.RNNBase)


@contextmanager
def sampling(model: nn.Module) -> Iterator[None]:
    """Let sites and ordinary dropout layers sample inside; everything else (batch normalisation!) is in eval mode.

    Every other :class:`~contextual_dropout.nn.stochastic.Stochastic` layer samples too. Ordinary dropout is that of
    ``nn.Dropout`` and its variants, ``nn.MultiheadAttention`` and ``nn.LSTM``, ``nn.GRU``, ``nn.RNN``; dropout that is
    called as a function, ``F.dropout(x, p, self.training)`` (whatever the flag says, even a constant False:
    :mod:`contextual_dropout.nn.functional_dropout`); and that of modules which read their training flag for dropout
    alone, as in ``dropout_p=self.p if self.training else 0.0`` (:mod:`contextual_dropout.nn.dropout_flag`). The fused
    path of ``nn.TransformerEncoder``, which has no dropout, is off inside. The mode of every module is as before
    afterwards, also when an error ends the block. Modes are shared by all threads: inside, others must leave the model
    alone. Functional dropout is switched on in this thread alone.

    Raises:
        RuntimeError: another thread is inside with this model, or with one that shares a module with it.

    Example:
        >>> import torch
        >>> import contextual_dropout as cd
        >>> model = nn.Sequential(cd.ContextualDropout(50), nn.BatchNorm1d(50)).eval()
        >>> x = torch.randn(2, 50)
        >>> with cd.sampling(model):
        ...     torch.equal(model(x), model(x))
        False
        >>> torch.equal(model(x), model(x))
        True
    """
    with sampling_among(list(model.modules())), SAMPLED:
        yield


@contextmanager
def sampling_among(modules: list[nn.Module]) -> Iterator[None]:
    """Do the same as :func:`sampling`, for the modules of a model that the caller has already collected."""
    layers = [module for module in modules if isinstance(module, Stochastic)]
    with _INSIDE.among(modules):
        training = [module.training for module in modules]
        were_sampling = [layer.sampling for layer in layers]
        try:
            for module in modules:
                if module.training != _only_drops(module):  # to set an attribute of a module is slow
                    module.training = not module.training
            for layer in layers:
                layer.sampling = True
            yield
        finally:
            for module, mode in zip(modules, training, strict=True):
                if module.training != mode:
                    module.training = mode
            for layer, mode in zip(layers, were_sampling, strict=True):
                layer.sampling = mode


def _only_drops(module: nn.Module) -> bool:
    """Whether a module does nothing in training mode but dropout of its own."""
    return isinstance(module, _DROPOUT) or drops_by_flag(type(module))  # type: ignore[arg-type]  # classes are hashable


class _SamplingThreads:
    """The threads that sample, so that no two change the modes of one module, and the fused path stays off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}  # by the id of a module
        self._blocks = 0
        self._fused = True

    @contextmanager
    def among(self, modules: list[nn.Module]) -> Iterator[None]:
        """Enter with these modules: a thread may do so several times, other threads only with other modules."""
        thread = threading.get_ident()
        with self._lock:
            if any(self._threads.get(id(module), thread) != thread for module in modules):
                raise RuntimeError(_OTHER_THREAD)
            new = [id(module) for module in modules if id(module) not in self._threads]
            self._threads.update(dict.fromkeys(new, thread))
            if not self._blocks:
                self._fused = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                for module in new:
                    del self._threads[module]
                self._blocks -= 1
                if not self._blocks:
                    torch.backends.mha.set_fastpath_enabled(self._fused)


_INSIDE = _SamplingThreads()
_OTHER_THREAD = (
    "another thread samples from this model: a module has one mode for all threads. Use cd.predict alone, whose calls "
    "wait for one another, or give each thread a copy of the model (copy.deepcopy)"
)
