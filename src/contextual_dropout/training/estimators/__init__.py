"""Gradient estimators for the encoders, one file each.

========================== ============== ======== ==========================================
name                       pseudo passes  unbiased for
========================== ============== ======== ==========================================
auto                       as below       yes      any model; picks one of those below
reparameterized            0 (one sweep)  yes      Gaussian sites
truncated-reparameterized  0              no       Gaussian sites, where speed matters most
sequential-arm/-disarm     L              yes      few Bernoulli sites
sampled-arm/-disarm        k of L         yes      many Bernoulli sites
independent-arm/-disarm    1              no       comparison with the paper (Algorithm 2)
reinforce                  0 or more      yes      comparison
concrete                   0 (one sweep)  no       comparison
straight-through           0              no       wide Bernoulli sites, where ARM is too noisy
========================== ============== ======== ==========================================

Every estimator also handles the Gaussian sites of a mixed model.
"""

from __future__ import annotations

from typing import Protocol

from contextual_dropout.replay.recording import Sampler
from contextual_dropout.training.estimators.auto import Auto
from contextual_dropout.training.estimators.concrete import Concrete
from contextual_dropout.training.estimators.independent_arm import IndependentARM
from contextual_dropout.training.estimators.reinforce import LeaveOneOut, MovingAverage, Reinforce
from contextual_dropout.training.estimators.reparameterized import Reparameterized, exact, truncated
from contextual_dropout.training.estimators.sampled_arm import SampledARM
from contextual_dropout.training.estimators.sequential_arm import SequentialARM
from contextual_dropout.training.estimators.straight_through import StraightThrough
from contextual_dropout.training.estimators.weightings import arm, disarm
from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial

__all__ = [
    "Auto",
    "Concrete",
    "Estimator",
    "IndependentARM",
    "LeaveOneOut",
    "MovingAverage",
    "Reinforce",
    "Reparameterized",
    "SampledARM",
    "SequentialARM",
    "StraightThrough",
    "arm",
    "by_name",
    "disarm",
    "exact",
    "names",
    "truncated",
]


class Estimator(Protocol):
    """Turns a recorded pass into gradients for what the encoders computed."""

    @property
    def sampler(self) -> Sampler:
        """The function that turns the sites' noise into masks in the true pass."""

    @property
    def reruns(self) -> bool:
        """Whether it may run the pass again; the recording then keeps what that needs."""

    def __call__(self, trial: Trial) -> list[Signal]:
        """The estimated gradients of the batch's ELBO."""


def names() -> list[str]:
    """The names that :func:`by_name` knows."""
    return list(_registry())


def by_name(name: str) -> Estimator:
    """A new estimator, with its default settings.

    Example:
        >>> by_name("sampled-disarm").sites
        1
    """
    registry = _registry()
    if name not in registry:
        raise ValueError(f"unknown estimator {name!r}: expected one of {', '.join(registry)}")
    return registry[name]


def _registry() -> dict[str, Estimator]:
    return {
        "auto": Auto(),
        "reparameterized": Reparameterized(exact),
        "truncated-reparameterized": Reparameterized(truncated),
        "sequential-arm": SequentialARM(arm),
        "sequential-disarm": SequentialARM(disarm),
        "sampled-arm": SampledARM(weighting=arm),
        "sampled-disarm": SampledARM(weighting=disarm),
        "independent-arm": IndependentARM(arm),
        "independent-disarm": IndependentARM(disarm),
        "reinforce": Reinforce(),
        "concrete": Concrete(),
        "straight-through": StraightThrough(),
    }
