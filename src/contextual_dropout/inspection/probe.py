"""Checking that the dropout is really on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contextual_dropout.conversion.record import sites
from contextual_dropout.nn.site import ContextualDropout, masked
from contextual_dropout.nn.stochastic import sampling
from contextual_dropout.replay.compilation import eagerly, uncompiled
from contextual_dropout.replay.generators import preserved

__all__ = ["Probe", "SilentSiteError", "probe"]


class SilentSiteError(RuntimeError):
    """A site has no effect."""


@dataclass(frozen=True)
class SiteSpread:
    """The behaviour of one site in a probe.

    Attributes:
        calls: per pass.
        keep_probability: mean over samples and units.
        contextuality: standard deviation of the keep probability over the samples of the batch (and the positions of a
            position-wise site), mean over units.
        spread: standard deviation of the mask over the passes, mean over samples and units.
    """

    calls: float
    keep_probability: float
    contextuality: float
    spread: float

    def __str__(self) -> str:
        return f"{self.calls:5.1f}  {self.keep_probability:5.3f}  {self.contextuality:15.4f}  {self.spread:17.4f}"


@dataclass(frozen=True)
class Probe:
    """Every site's spread over sampled masks; prints as a table."""

    sites: dict[str, SiteSpread]

    def __repr__(self) -> str:
        width = max(4, *(len(name) for name in self.sites))
        head = f"{'site':<{width}}  calls   keep  sd over samples  spread over masks"
        rows = (f"{name or '(the model)':<{width}}  {spread}" for name, spread in self.sites.items())
        return "\n".join([head, *rows])


class _Watch(TorchFunctionMode):
    """Notes the keep probabilities and masks of each site, and whether it had anything to mask."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[ContextualDropout, list[Tensor]] = defaultdict(list)
        self.keep: dict[ContextualDropout, Tensor] = {}
        self.fed: set[ContextualDropout] = set()

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        if func is not masked:
            return func(*args, **(kwargs or {}))
        site, u, context = args
        logits = site.logits(u, context)
        mask = site.family.sample(logits, site.family.noise(logits))
        self.masks[site].append(mask)
        self.keep[site] = logits.sigmoid()
        if u.any():
            self.fed.add(site)
        return site.apply_mask(u, mask)


def probe(model: nn.Module, *inputs: Any, samples: int = 8, **keywords: Any) -> Probe:
    """Run the model as :func:`contextual_dropout.predict` would, and check that every site has an effect.

    Args:
        model: a network with sites.
        inputs: for the model's forward.
        samples: how many passes.
        keywords: for the model's forward.

    Raises:
        SilentSiteError: a site never ran, had only zeros to mask, or drew the same mask in every pass.

    Example:
        >>> import contextual_dropout as cd
        >>> model = nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8, p=0.5), nn.Linear(8, 2))
        >>> list(cd.probe(model, torch.randn(16, 4)).sites)
        ['1']
    """
    model = uncompiled(model)
    found = sites(model)
    if not found:
        raise ValueError("the model has no contextual dropout site: see cd.contextualize")
    passes: list[_Watch] = []
    devices = {parameter.device for parameter in model.parameters()}
    with eagerly(), preserved(devices), sampling(model), torch.no_grad():
        for _ in range(max(samples, 2)):
            with _Watch() as watch:
                model(*inputs, **keywords)
            passes.append(watch)
    return Probe({name: _spread(name, site, passes) for name, site in found.items()})


def _spread(name: str, site: ContextualDropout, passes: list[_Watch]) -> SiteSpread:
    calls = [watch.masks[site] for watch in passes]
    if not all(calls):
        raise SilentSiteError(
            f"site {name!r} never ran: it is not on the path of this input, or a fused or functional path goes around "
            "its module (exclude it, or convert with example= so that such places are found)"
        )
    if not any(site in watch.fed for watch in passes):
        raise SilentSiteError(f"site {name!r} has no effect: its input is zero")
    masks, keep = torch.stack([masks[0] for masks in calls]), passes[0].keep[site]
    constant = torch.equal(masks, masks[:1].expand_as(masks))
    if constant and (keep * (1 - keep)).max() < 1e-4:  # else it was chance: few units, few samples
        raise SilentSiteError(
            f"site {name!r} drew the same mask in {len(passes)} passes: its mean keep probability is {keep.mean():.4f}"
        )
    rows = keep.flatten(0, -2)
    contextuality = rows.std(0).mean().item() if len(rows) > 1 else 0.0
    return SiteSpread(sum(map(len, calls)) / len(calls), keep.mean().item(), contextuality, masks.std(0).mean().item())
