"""The kind of module that stands for several networks, so that ``predict`` need not know who builds them."""

from __future__ import annotations

from torch import nn

__all__ = ["Ensemble"]


class Ensemble(nn.Module):
    """Several networks that predict together; :func:`contextual_dropout.predict` shares the samples among them.

    Attributes:
        members: the networks, at least one.
    """

    members: nn.ModuleList
