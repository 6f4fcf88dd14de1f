"""Is the dropout really on?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contextual_dropout.conversion.parameters import sites
from contextual_dropout.modes import sampling
from contextual_dropout.site import ContextualDropout, masked

__all__ = ["Probe", "SilentSiteError", "probe"]


class SilentSiteError(RuntimeError):
    """A site does not do anything."""


@dataclass(frozen=True)
class SiteSpread:
    """What one site did in the probe.

    Attributes:
        calls: per pass.
        keep_probability: mean over samples and units.
        contextuality: standard deviation of the keep probability over the samples of the batch, mean over units.
        spread: mean standard deviation of the site's output over the passes.
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
    """Notes what each site keeps and returns."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[ContextualDropout, list[Tensor]] = defaultdict(list)
        self.keep: dict[ContextualDropout, Tensor] = {}

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is masked:
            site, u, context = args
            self.outputs[site].append(out)
            self.keep[site] = site.keep_probability(u, context)
        return out


def probe(model: nn.Module, *inputs: Any, samples: int = 8, **keywords: Any) -> Probe:
    """Run the model as :func:`contextual_dropout.predict` would, and see whether every site does something.

    Args:
        model: a network with sites.
        inputs: for the model's forward.
        samples: how many passes.
        keywords: for the model's forward.

    Raises:
        SilentSiteError: a site never ran, or its output did not vary over the passes.

    Example:
        >>> import contextual_dropout as cd
        >>> model = nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8, p=0.5), nn.Linear(8, 2))
        >>> list(cd.probe(model, torch.randn(16, 4)).sites)
        ['1']
    """
    found = sites(model)
    if not found:
        raise ValueError("the model has no contextual dropout site: see cd.contextualize")
    passes: list[_Watch] = []
    with sampling(model), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for _ in range(max(samples, 2)):
            with _Watch() as watch:
                model(*inputs, **keywords)
            passes.append(watch)
    return Probe({name: _spread(name, site, passes) for name, site in found.items()})


def _spread(name: str, site: ContextualDropout, passes: list[_Watch]) -> SiteSpread:
    calls = [watch.outputs[site] for watch in passes]
    if not all(calls):
        raise SilentSiteError(
            f"site {name!r} never ran: it is not on the path of this input, or a fused or functional path goes around "
            "its module (exclude it, or convert with example= so that such places are found)"
        )
    first = torch.stack([outputs[0].float() for outputs in calls])
    spread = first.std(0).mean().item()
    keep = passes[0].keep[site]
    if torch.equal(first, first[:1].expand_as(first)):
        constant = "its input is zero" if not first.any() else f"its mean keep probability is {keep.mean().item():.4f}"
        raise SilentSiteError(
            f"site {name!r} ran but gave the same output under {len(passes)} sampled masks: {constant}"
        )
    contextuality = keep.std(0).mean().item() if len(keep) > 1 else 0.0
    return SiteSpread(sum(map(len, calls)) / len(calls), keep.mean().item(), contextuality, spread)
