"""Sampled sequential ARM: pseudo passes for k of the L draws, weighed by L / k. Unbiased."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from contextual_dropout.training.estimators.reparameterized import Pathwise, exact
from contextual_dropout.training.estimators.sequential_arm import antithetic_signal
from contextual_dropout.training.estimators.weightings import Weighting, arm
from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial, sample

__all__ = ["SampledARM"]


@dataclass(frozen=True)
class SampledARM:
    """Sequential ARM on ``sites`` draws chosen at random in each step, for networks with many sites.

    Args:
        sites: k, how many pseudo passes a step runs; at least L of them is sequential ARM.
        weighting: :func:`~contextual_dropout.training.estimators.weightings.arm` or ``disarm``.
        pathwise: what the Gaussian sites of a mixed model use.
    """

    sites: int = 1
    weighting: Weighting = arm
    pathwise: Pathwise = exact
    reruns = True
    sampler = staticmethod(sample)

    def __post_init__(self) -> None:
        if self.sites < 1:
            raise ValueError(f"sites, the number of pseudo passes per step, must be at least 1, got {self.sites}")

    def __call__(self, trial: Trial) -> list[Signal]:
        """One signal for each chosen draw and each pathwise one."""
        draws = trial.score_draws
        chosen = [draws[i] for i in torch.randperm(len(draws))[: self.sites].tolist()]
        signals = []
        for index, draw in chosen:
            signal = antithetic_signal(trial, index, draw, self.weighting)
            signals.append(Signal(signal.carrier, signal.gradient * (len(draws) / len(chosen))))
        return signals + self.pathwise(trial, signals)
