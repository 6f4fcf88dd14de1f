"""Expected masks: the network is trained on the means of its masks, and used with samples. Deterministic, biased."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from contextual_dropout.estimators.reparameterized import Pathwise, truncated
from contextual_dropout.families import Family
from contextual_dropout.signals import Signal
from contextual_dropout.trial import Trial

__all__ = ["Expected"]


@dataclass(frozen=True)
class Expected:
    """z = sigmoid(a), the mean of the mask, in place of 1[pi < sigmoid(a)].

    The bound's expectation of the log-likelihood is replaced by the log-likelihood of the expected masks; the
    divergence is as ever. That is exact where the log-likelihood is linear in the masks, and where they are certain: it
    does not see what their noise costs, so that nothing but the divergence keeps a mask from being half open. It has no
    variance at all, and the encoders learn as those of a gated network do.

    Args:
        pathwise: how the gradient runs through the masks. By default it stops at the encoders' inputs, which costs
            no further sweep; the estimator is biased in any case.
    """

    pathwise: Pathwise = truncated
    reruns = False

    def sampler(self, family: Family, logits: Tensor, noise: Tensor) -> Tensor:
        """Expected Bernoulli masks; pathwise families as they are."""
        return family.sample(logits, noise) if family.pathwise else family.mean(logits)

    def __call__(self, trial: Trial) -> list[Signal]:
        """One signal per draw, or none where the loss's own backward does it all."""
        return self.pathwise(trial, [])
