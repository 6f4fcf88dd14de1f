"""Deep ensembles: networks trained from different initial weights (Lakshminarayanan et al., 2017)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.prediction.ensemble import Ensemble
from contextual_dropout.replay.generators import isolated, seed_from

__all__ = ["DeepEnsemble", "deep_ensemble"]


class DeepEnsemble(Ensemble):
    """Several networks that predict together; :func:`contextual_dropout.predict` shares the samples among them.

    Calling it gives the logarithm of the members' mean probability; train each of :attr:`members` by itself.

    Args:
        members: networks with the same kind of output, deterministic or stochastic.
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if not len(self.members):
            raise ValueError("an ensemble needs at least one member")

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:
        logits = torch.stack([member(*inputs, **keywords) for member in self.members])  # (M, B, C)
        return torch.logsumexp(logits.log_softmax(-1), 0) - math.log(len(logits))


def deep_ensemble(build: Callable[[], nn.Module], members: int = 5, *, seed: int = 0) -> DeepEnsemble:
    """``members`` networks from ``build()``, each with parameters drawn from a seed of its own.

    Args:
        build: makes one network of any kind, such as ``lambda: cd.contextualize(make_mlp())``.
        members: how many.
        seed: the members' own seeds are drawn from it, so that two ensembles with different seeds share no member;
            the global generators are as before afterwards.

    Example:
        >>> import contextual_dropout as cd
        >>> ensemble = deep_ensemble(lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3)), 3)
        >>> cd.predict(ensemble, torch.randn(5, 4), samples=30).samples.shape
        torch.Size([30, 5, 3])
    """
    generator = torch.Generator().manual_seed(seed)
    accelerators = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    networks = []
    for _ in range(members):
        with isolated(seed_from(None, generator), accelerators):
            networks.append(build())
    return DeepEnsemble(networks)
