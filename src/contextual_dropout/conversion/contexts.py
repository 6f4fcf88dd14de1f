"""Finding contexts that are the same for every sample by construction, so that no rate can depend on the sample.

After an instance normalisation the mean over the pixels of a channel is 0, and that of softmaxed attention weights over
the keys is one over their number.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.conversion.example import Example
from contextual_dropout.conversion.observation import observe
from contextual_dropout.nn.encoder import pool
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["Constancy", "constancies", "follows_instance_norm"]

#: Contexts that differ by less over samples, relative to the features, do not differ.
CONSTANT = 1e-5
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


@dataclass(frozen=True)
class Constancy:
    """Whether what a site could read is the same for all samples though their features are not.

    Attributes:
        mean: the means over what is pooled.
        deviation: the mean absolute deviations from them.
    """

    mean: bool
    deviation: bool


def constancies(model: nn.Module, example: Example) -> dict[ContextualDropout, Constancy]:
    """Find what is constant over the samples of an example, for all sites that pool and are not given a context.

    Call it inside :func:`~contextual_dropout.conversion.discovery.plainly`.
    """
    calls = observe(model, example, _constancy).calls
    return {
        site: Constancy(all(each.mean for each in found), all(each.deviation for each in found))
        for site, kept in calls.items()
        if (found := [each for each in kept if each is not None])
    }


def _constancy(site: ContextualDropout, u: Tensor, context: Tensor | None) -> Constancy | None:
    dim = (1 if u.ndim >= 4 else -1) if getattr(site, "_dim_is_open", False) else site.dim
    axes = {axis % u.ndim for axis in (*site.batch_dims, dim)} if u.ndim > max(site.batch_dims) else set()
    if context is not None or site.config["encoder"] == "global" or len(axes) in (0, 1, u.ndim):
        return None
    precise = u.detach().double() if u.device.type != "mps" else u.detach().float()
    scale = precise.square().mean().sqrt().item() * CONSTANT
    if not _varies(precise.movedim(site.batch_dims[0], 0).flatten(1), scale):
        return None
    mean, deviation = pool(precise, site.batch_dims, dim, pooling="mean-deviation").flatten(0, -2).chunk(2, -1)
    return Constancy(not _varies(mean, scale), not _varies(deviation, scale))


def _varies(rows: Tensor, scale: float) -> bool:
    return bool((rows.amax(0) - rows.amin(0)).max() > scale) if rows.numel() else False


def follows_instance_norm(model: nn.Module, name: str) -> bool:
    """Whether a layer is, or comes right after, an instance normalisation in a sequence of layers."""
    parent_name, _, own = name.rpartition(".")
    parent, layer = model.get_submodule(parent_name), model.get_submodule(name)
    if isinstance(parent, nn.Sequential) and isinstance(layer, _DropoutNd):
        children = dict(parent.named_children())
        before = list(children)[: list(children).index(own)] if own in children else []
        layer = children[before[-1]] if before else layer
    return _is_instance_norm(layer)


def _is_instance_norm(layer: nn.Module) -> bool:
    groups = isinstance(layer, nn.GroupNorm) and layer.num_groups == layer.num_channels
    return groups or isinstance(layer, INSTANCE_NORMS)
