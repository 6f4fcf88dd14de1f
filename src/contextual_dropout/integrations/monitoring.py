"""Numbers to log while contextual dropout trains, and a KL schedule that counts updates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.conversion.record import sites
from contextual_dropout.inspection.context import keep_probabilities
from contextual_dropout.training.objective import Step
from contextual_dropout.training.schedules import Constant, Schedule

__all__ = ["Averages", "PerUpdate", "keep_summary"]


class PerUpdate:
    """A KL schedule that counts updates of the parameters instead of batches: gradients may be accumulated.

    :class:`~contextual_dropout.ELBO` advances its schedule with every batch, which does nothing here; the code that
    updates the parameters calls :meth:`update`.

    Args:
        kl_weight: a number or a schedule.

    Example:
        >>> from contextual_dropout.training.schedules import LinearWarmup
        >>> schedule = PerUpdate(LinearWarmup(steps=2))
        >>> schedule.advance(), schedule.weight, schedule.update(), schedule.weight
        (None, 0.0, None, 0.5)
    """

    def __init__(self, kl_weight: float | Schedule) -> None:
        self._schedule = Constant(kl_weight) if isinstance(kl_weight, int | float) else kl_weight

    @property
    def weight(self) -> float:
        """The weight of the current update."""
        return self._schedule.weight

    def advance(self) -> None:
        """Do nothing at the end of a batch."""

    def update(self) -> None:
        """Advance the schedule after an update of the parameters."""
        self._schedule.advance()

    def state_dict(self) -> dict[str, Any]:
        """The state of the schedule."""
        return self._schedule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the state of another schedule."""
        self._schedule.load_state_dict(state)


class Averages:
    """Means over the examples since the last :meth:`take`; the sums stay on their device until then."""

    def __init__(self) -> None:
        self._sums: Tensor | float = 0.0
        self._examples, self._kl_weight = 0, 0.0

    def add(self, step: Step) -> None:
        """Count a batch."""
        self._sums = self._sums + torch.stack([step.log_likelihood.sum(), step.kl.sum()]).double()
        self._examples += len(step.kl)
        self._kl_weight = step.kl_weight

    def take(self) -> dict[str, float]:
        """Log-likelihood and KL per example in nats, and the last KL weight; empty without a batch."""
        if not isinstance(self._sums, Tensor):
            return {}
        log_likelihood, kl = (self._sums / self._examples).tolist()
        self._sums, self._examples = 0.0, 0
        return {"log_likelihood": log_likelihood, "kl": kl, "kl_weight": self._kl_weight}


def keep_summary(model: nn.Module, *inputs: Any, **keywords: Any) -> dict[str, float]:
    """Each site's keep probabilities for a batch, in one more pass with sampled masks and without autograd.

    ``keep/<site>`` is their mean, ``keep_spread/<site>`` their standard deviation over examples and positions, averaged
    over units: 0 where nothing depends on the input (and on earlier masks). ``prior/<site>`` is that of the prior.

    Example:
        >>> import torch, contextual_dropout as cd
        >>> keep_summary(nn.Sequential(cd.ContextualDropout(3, initialisation="zero")), torch.randn(2, 3))
        {'keep/0': 0.8, 'keep_spread/0': 0.0, 'prior/0': 0.8}
    """
    summary: dict[str, float] = {}
    for name, keep in keep_probabilities(model, *inputs, **keywords).items():
        summary[f"keep/{name}"] = keep.mean().item()
        summary[f"keep_spread/{name}"] = keep.flatten(0, -2).std(0, correction=0).mean().item()
        summary[f"prior/{name}"] = sites(model)[name].prior_keep_probability.item()
    return summary
