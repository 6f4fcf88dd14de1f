"""Sampling masks in a network that is otherwise in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.stochastic import Stochastic

__all__ = ["sampling", "sampling_among"]

#: Modules that do nothing in training mode but dropout of their own.
_DROPOUT = (_DropoutNd, nn.MultiheadAttention, nn.RNNBase)


@contextmanager
def sampling(model: nn.Module) -> Iterator[None]:
    """Inside, sites and ordinary dropout layers sample; everything else (batch normalisation!) is in eval mode.

    Every other :class:`~contextual_dropout.stochastic.Stochastic` layer samples too. Ordinary dropout is that of
    ``nn.Dropout`` and its kin, ``nn.MultiheadAttention`` and ``nn.LSTM``, ``nn.GRU``, ``nn.RNN``. The fused path of
    ``nn.TransformerEncoder``, which has no dropout, is off inside. The mode of every module is as before afterwards,
    also when an error ends the block.

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
    with sampling_among(list(model.modules())):
        yield


@contextmanager
def sampling_among(modules: list[nn.Module]) -> Iterator[None]:
    """As :func:`sampling`, for all modules of a model, which the caller has already collected."""
    training = [module.training for module in modules]
    layers = [module for module in modules if isinstance(module, Stochastic)]
    were_sampling = [layer.sampling for layer in layers]
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for module in modules:
            if module.training != isinstance(module, _DROPOUT):  # to set an attribute of a module is slow
                module.training = not module.training
        for layer in layers:
            layer.sampling = True
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for module, mode in zip(modules, training, strict=True):
            if module.training != mode:
                module.training = mode
        for layer, mode in zip(layers, were_sampling, strict=True):
            layer.sampling = mode
