"""Learnable Bernoulli dropout: a learned rate for every unit, but none for the sample (Boluki et al., 2020).

The same masks, prior, objective and estimators as contextual dropout, so that what is left between the two is context.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contextual_dropout.conversion.convert import contextualize, sites
from contextual_dropout.encoder import GlobalLogits
from contextual_dropout.modes import sampling
from contextual_dropout.site import ContextualDropout, masked

__all__ = ["freeze_context", "learnable_dropout"]

Model = TypeVar("Model", bound=nn.Module)


def learnable_dropout(model: Model, p: float | None = None, **options: Any) -> Model:
    """The network with a learned rate per unit in the place of its dropout; train with ``cd.ELBO``.

    Args:
        model: a network with dropout layers.
        p: initial drop rate; that of each layer by default.
        options: of :func:`contextual_dropout.contextualize`.

    Example:
        >>> model = learnable_dropout(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3)))
        >>> keep = model[1].eval().keep_probability(torch.randn(5, 8))
        >>> bool((keep == keep[0]).all())
        True
    """
    return contextualize(model, p=p, encoder="global", **options)


class _MeanKeepProbability(TorchFunctionMode):
    """Adds up the keep probabilities of each site over examples and passes."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[ContextualDropout, Tensor] = {}
        self.counts: dict[ContextualDropout, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is masked:
            site, u, *context = args
            keep = site.logits(u, *context).double().sigmoid()  # in single precision many a one is 1
            self.sums[site] = self.sums.get(site, 0) + keep.sum(0)
            self.counts[site] = self.counts.get(site, 0) + len(keep)
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def freeze_context(model: Model, *inputs: Any, **keywords: Any) -> Model:
    """A copy whose sites keep each unit with its mean probability over ``inputs``, whatever the sample.

    What such a copy loses is what the context was worth.

    Args:
        model: a network with sites.
        inputs: for its forward; the mean is over these examples, in one sampled pass.
        keywords: for its forward.

    Raises:
        ValueError: if the pass meets no site.

    Example:
        >>> import contextual_dropout as cd
        >>> model, x = nn.Sequential(cd.ContextualDropout(4), nn.Linear(4, 3)), torch.randn(50, 4)
        >>> frozen = freeze_context(model, x)
        >>> mean = model[0].keep_probability(x).mean(0)
        >>> torch.allclose(frozen[0].keep_probability(torch.randn(2, 4)), mean)
        True
    """
    frozen = copy.deepcopy(model)
    with sampling(frozen), _MeanKeepProbability() as mean:
        frozen(*inputs, **keywords)
    if not mean.sums:
        raise ValueError("the model called no contextual dropout site: there is no context to freeze")
    for site in sites(frozen).values():
        if site not in mean.sums:
            continue
        old = site.encoder
        keep = mean.sums[site] / mean.counts[site]
        site.encoder = GlobalLogits(
            old.features,
            old.context_features,
            reduction=old.reduction,
            temperature=old.temperature,
            initial_logit=old.initial_logit,
        ).to(old.expand_bias)
        site.encoder.train(old.training).requires_grad_(old.trainable)
        site.encoder.expand_bias.copy_(keep.logit(torch.finfo(keep.dtype).eps) / old.temperature)
        site.config["encoder"] = "global"
    return frozen
