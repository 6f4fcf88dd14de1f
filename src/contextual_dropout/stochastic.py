"""Layers that sample: in training mode, and inside :func:`contextual_dropout.sampling`."""

from __future__ import annotations

from torch import nn

__all__ = ["Stochastic"]


class Stochastic(nn.Module):
    """A layer with random output of its own kind, which ``cd.sampling`` and ``cd.predict`` switch on.

    Derive from it to bring a stochastic layer of yours: sample where :attr:`stochastic` says so, else be the point
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
