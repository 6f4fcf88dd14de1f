"""The default estimator: unbiased, chosen by the sites that the model contains."""

from __future__ import annotations

from dataclasses import dataclass

from contextual_dropout.training.estimators.reparameterized import Pathwise, exact
from contextual_dropout.training.estimators.sampled_arm import SampledARM
from contextual_dropout.training.estimators.sequential_arm import SequentialARM
from contextual_dropout.training.estimators.weightings import disarm
from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial, sample

__all__ = ["Auto"]


@dataclass(frozen=True)
class Auto:
    """Reparameterized gradients for Gaussian draws; DisARM for Bernoulli draws: sequential for up to
    ``sequential_limit`` of them, sampled (one pseudo pass per step) for more.

    Args:
        sequential_limit: with four draws the pseudo passes together cost at most 2.5 forward passes; every
            further draw would add about half of one to each step.
        pathwise: what Gaussian sites use.
    """

    sequential_limit: int = 4
    pathwise: Pathwise = exact
    reruns = True
    sampler = staticmethod(sample)

    def __call__(self, trial: Trial) -> list[Signal]:
        """One signal for each draw that was chosen."""
        if len(trial.score_draws) <= self.sequential_limit:
            return SequentialARM(disarm, self.pathwise)(trial)
        return SampledARM(1, disarm, self.pathwise)(trial)
