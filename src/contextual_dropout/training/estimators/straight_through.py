"""Straight-through masks: hard forwards, differentiable backwards. Biased, with little variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contextual_dropout.nn.families import Family
from contextual_dropout.training.estimators.reparameterized import Pathwise, truncated
from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial

__all__ = ["StraightThrough"]


@dataclass(frozen=True)
class StraightThrough:
    """z = 1[pi < sigmoid(a)], with the derivative of its mean: dz/da := keep (1 - keep) (Bengio et al. 2013).

    The network is trained on the hard masks that it is used with. The gradient is exact where the log-likelihood is
    linear in a unit's mask, f(1) - f(0) = f'(z), and nearly so in a wide layer, where each unit adds little. It credits
    each unit separately: ARM gives all C units of a site the same difference of two rewards, so that the noise grows
    with C and hides the worth of one unit's context.

    Args:
        pathwise: how the gradient runs through the masks. By default it stops at the encoders' inputs, which costs
            no further sweep; the estimator is biased in any case.
    """

    pathwise: Pathwise = truncated
    reruns = False

    def sampler(self, family: Family, logits: Tensor, noise: Tensor) -> Tensor:
        """Hard Bernoulli masks with the derivative of their mean; pathwise families as they are."""
        mask = family.sample(logits, noise)
        if family.pathwise:
            return mask
        if torch.compiler.is_dynamo_compiling():
            keep = logits.sigmoid()
            return mask + (keep - keep.detach())  # plus nothing at all: the mask stays hard to the last bit
        return _WithSlopeOfMean.apply(mask, logits)  # type: ignore[no-any-return, no-untyped-call]

    def __call__(self, trial: Trial) -> list[Signal]:
        """One signal per draw, or none where the loss's own backward does it all."""
        return self.pathwise(trial, [])


class _WithSlopeOfMean(torch.autograd.Function):
    """The mask as it is, to the last bit; dz/da = keep (1 - keep)."""

    @staticmethod
    def forward(ctx: Any, mask: Tensor, logits: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return mask.view_as(mask)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        (logits,) = ctx.saved_tensors
        keep = logits.sigmoid()
        return None, torch.addcmul(keep, keep, keep, value=-1).mul_(gradient)
