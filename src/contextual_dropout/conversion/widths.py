"""One site for each width of a layer that is used at several, as one ``nn.Dropout`` often is."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from contextual_dropout.nn.site import ContextualDropout, LazyContextualDropout

__all__ = ["SitePerWidth", "with_a_site_per_width"]

#: The end of the names of sites that take the channels, the second axis, where others take the last.
CHANNELS = "_channels"


class SitePerWidth(nn.ModuleDict):
    """Hands inputs on to the site for their number of features.

    Args:
        sites: by width: ``{"64": ..., "128": ...}``; ``"64_channels"`` is for the second axis of inputs with four axes
            or more where the others are for the last axis of inputs with fewer.

    Example:
        >>> import torch
        >>> sites = SitePerWidth({"4": ContextualDropout(4), "6": ContextualDropout(6)})
        >>> sites(torch.randn(2, 4)).shape, sites(torch.randn(2, 3, 6)).shape
        (torch.Size([2, 4]), torch.Size([2, 3, 6]))
    """

    def __init__(self, sites: Mapping[str, nn.Module]) -> None:
        super().__init__(sites)
        first = next(iter(self.values()))
        assert isinstance(first, ContextualDropout)
        self.dim = None if any(key.endswith(CHANNELS) for key in sites) else first.dim

    @property
    def p(self) -> float:
        """The initial drop rate, which all have in common."""
        return next(site.p for site in self.values() if isinstance(site, ContextualDropout))

    def forward(self, u: Tensor, context: Tensor | None = None) -> Tensor:
        """Mask ``u`` with the site for its width; see :class:`~contextual_dropout.ContextualDropout`."""
        key = _key(u.shape, self.dim)
        if key not in self:
            raise ValueError(
                f"no site for an input of shape {tuple(u.shape)}: the example that this layer was converted with had "
                f"the widths {', '.join(self)}. Convert with an example that has all of them, or leave the layer out "
                "with exclude="
            )
        masked: Tensor = self[key](u, context)
        return masked


def with_a_site_per_width(module: nn.Module, shapes: Iterable[tuple[int, ...]]) -> nn.Module:
    """The site itself, or one for each width if it is still lazy and inputs of these shapes have several."""
    if not isinstance(module, LazyContextualDropout):
        return module
    dim = None if module._dim_is_open else module.dim
    keys = dict.fromkeys(_key(shape, dim) for shape in shapes)
    if len(keys) < 2:
        return module
    sites = {key: copy.deepcopy(module) for key in keys}
    for key, site in sites.items():
        if dim is None:
            site.dim, site._dim_is_open = (1 if key.endswith(CHANNELS) else -1), False
            site.config["dim"] = site.dim
    return SitePerWidth(sites)


def _key(shape: tuple[int, ...], dim: int | None) -> str:
    if dim is None:
        return f"{shape[1]}{CHANNELS}" if len(shape) >= 4 else f"{shape[-1]}"
    return f"{shape[dim]}"
