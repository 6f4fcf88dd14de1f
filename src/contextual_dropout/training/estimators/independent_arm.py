"""Independent ARM, Algorithm 2: one pseudo pass with every Bernoulli draw mirrored at once.

Biased whenever a site's logits depend on earlier masks: the pseudo pass then mirrors the noise under *other*
logits, so its mask is not the antithetic partner of the true one. The bias sits on the very weights that make
dropout contextual. :class:`~contextual_dropout.training.estimators.SampledARM` costs as much and is unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from contextual_dropout.nn.families import Family
from contextual_dropout.training.estimators.reparameterized import Pathwise, exact
from contextual_dropout.training.estimators.weightings import Weighting, arm
from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial, sample

__all__ = ["IndependentARM"]


def mirror(family: Family, logits: Tensor, noise: Tensor) -> Tensor:
    """The pseudo action of a family without pathwise gradients, the ordinary one of any other."""
    return family.sample(logits, noise) if family.pathwise else family.antithetic(logits, noise)


@dataclass(frozen=True)
class IndependentARM:
    """One pseudo pass for all draws; biased unless the sites' logits ignore one another.

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
        signals = []
        if trial.score_draws:
            first, draw = trial.score_draws[0]
            outcome = trial.counterfactual(first, mirror(draw.family, draw.logits, draw.noise), mirror)
            for index, draw in trial.score_draws:
                difference = trial.true.reward(index) - outcome.reward(index)
                pseudo = draw.family.antithetic(draw.logits, draw.noise)
                signals.append(Signal(draw.logits, self.weighting(draw, pseudo, difference)))
        return signals + self.pathwise(trial, signals)
