"""The concrete relaxation: Bernoulli masks made continuous for the true pass. Biased, with little variance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from contextual_dropout.nn.families import Family
from contextual_dropout.training.estimators.reparameterized import Pathwise, exact
from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial

__all__ = ["Concrete"]


@dataclass(frozen=True)
class Concrete:
    """z = sigmoid((a + logit(pi)) / temperature) in place of 1[pi < sigmoid(a)] (Gal et al. 2017).

    The network is trained on relaxed masks and used with hard ones.

    Args:
        temperature: of the relaxation, not of the encoder; near 0 the masks are nearly hard.
        pathwise: how the gradient runs through the masks.
    """

    temperature: float = 0.1
    pathwise: Pathwise = exact
    reruns = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature must be a positive number, got {self.temperature}")

    def sampler(self, family: Family, logits: Tensor, noise: Tensor) -> Tensor:
        """Relaxed Bernoulli masks; pathwise families as they are."""
        if family.pathwise:
            return family.sample(logits, noise)
        uniform = noise.clamp(torch.finfo(noise.dtype).tiny, 1 - torch.finfo(noise.dtype).eps)
        return ((logits + uniform.logit()) / self.temperature).sigmoid()

    def __call__(self, trial: Trial) -> list[Signal]:
        """One signal per draw."""
        return self.pathwise(trial, [])
