"""Sequential ARM, Algorithm 1: one pseudo pass per Bernoulli draw. Unbiased."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from contextual_dropout.replay.distributed import processes
from contextual_dropout.replay.recording import Draw
from contextual_dropout.training.estimators.reparameterized import Pathwise, exact
from contextual_dropout.training.estimators.weightings import Weighting, arm
from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial, sample

__all__ = ["SequentialARM", "antithetic_signal"]


def antithetic_signal(trial: Trial, index: int, draw: Draw, weighting: Weighting) -> Signal:
    """[r(z^<l, z_true) - r(z^<l, z_pseudo)] (1/2 - pi), the gradient for the logits of draw l.

    The pseudo pass is left out where the pseudo mask equals the true one, unless other processes would wait for it.
    """
    pseudo = draw.family.antithetic(draw.logits, draw.noise)
    if processes() == 1 and torch.equal(pseudo, draw.mask):
        return Signal(draw.logits, torch.zeros_like(draw.logits))
    difference = trial.true.reward(index) - trial.counterfactual(index, pseudo).reward(index)
    return Signal(draw.logits, weighting(draw, pseudo, difference))


@dataclass(frozen=True)
class SequentialARM:
    """A pseudo pass for every Bernoulli draw: the least variance, at the cost of L suffixes.

    Args:
        weighting: :func:`~contextual_dropout.training.estimators.weightings.arm` or ``disarm``.
        pathwise: what the Gaussian sites of a mixed model use.
    """

    weighting: Weighting = arm
    pathwise: Pathwise = exact
    reruns = True
    sampler = staticmethod(sample)

    def __call__(self, trial: Trial) -> list[Signal]:
        """One signal per draw."""
        signals = [antithetic_signal(trial, index, draw, self.weighting) for index, draw in trial.score_draws]
        return signals + self.pathwise(trial, signals)
