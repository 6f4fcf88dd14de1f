"""Measuring what the context does: the keep probabilities of a batch, and a network with constant ones."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contextual_dropout.conversion.record import sites
from contextual_dropout.nn.encoder import GlobalLogits
from contextual_dropout.nn.site import ContextualDropout, masked
from contextual_dropout.nn.stochastic import sampling
from contextual_dropout.replay.compilation import eagerly, uncompiled
from contextual_dropout.replay.generators import preserved

__all__ = ["freeze_context", "keep_probabilities"]

Model = TypeVar("Model", bound=nn.Module)


class _Watch(TorchFunctionMode):
    """Notes the keep probabilities of every call of a site."""

    def __init__(self) -> None:
        super().__init__()
        self.keep: dict[ContextualDropout, list[Tensor]] = defaultdict(list)

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        if func is masked:
            site, u, *context = args
            # In double precision: in single, many round to 1.
            self.keep[site].append(site.logits(u, *context).double().sigmoid())
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def keep_probabilities(model: nn.Module, *inputs: Any, **keywords: Any) -> dict[str, Tensor]:
    """Each site's keep probabilities (B, C) in one pass with sampled masks, in double precision.

    Later sites read what the earlier ones' masks left. A site that is called several times has (calls * B, C), a
    position-wise one (B, ..., C), and (N, C) if it was called with different numbers of positions.

    Args:
        model: a network with sites.
        inputs: for its forward.
        keywords: for its forward.

    Raises:
        ValueError: if the pass meets no site.

    Example:
        >>> import contextual_dropout as cd
        >>> model = nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8), nn.Linear(8, 3))
        >>> {name: tuple(keep.shape) for name, keep in cd.keep_probabilities(model, torch.randn(5, 4)).items()}
        {'1': (5, 8)}
    """
    model = uncompiled(model)
    devices = {parameter.device for parameter in model.parameters()}
    with eagerly(), preserved(devices), sampling(model), _Watch() as watch:
        model(*inputs, **keywords)
    if not watch.keep:
        raise ValueError("the model called no contextual dropout site: add some with cd.contextualize(model)")
    return {name: _together(watch.keep[site]) for name, site in sites(model).items() if site in watch.keep}


def _together(calls: list[Tensor]) -> Tensor:
    """The keep probabilities of all calls, those of different shapes as rows (N, C)."""
    alike = all(call.shape[1:] == calls[0].shape[1:] for call in calls)
    return torch.cat(calls if alike else [call.flatten(0, -2) for call in calls])


@torch.no_grad()
def freeze_context(model: Model, *inputs: Any, **keywords: Any) -> Model:
    """A copy whose sites keep each unit with its mean probability over ``inputs``, whatever the sample and position.

    The context was worth what such a copy loses. The copy of a compiled model is not compiled.

    Args:
        model: a network with sites.
        inputs: for its forward; the mean is over these examples, in one sampled pass.
        keywords: for its forward.

    Raises:
        ValueError: if the pass meets no site.

    Example:
        >>> import contextual_dropout as cd
        >>> model, x = nn.Sequential(cd.ContextualDropout(4), nn.Linear(4, 3)), torch.randn(50, 4)
        >>> frozen = cd.freeze_context(model, x)
        >>> mean = model[0].keep_probability(x).mean(0)
        >>> torch.allclose(frozen[0].keep_probability(torch.randn(2, 4)), mean)
        True
    """
    means = {name: keep.flatten(0, -2).mean(0) for name, keep in keep_probabilities(model, *inputs, **keywords).items()}
    frozen = copy.deepcopy(uncompiled(model))
    for name, keep in means.items():
        site = sites(frozen)[name]
        old = site.encoder
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
