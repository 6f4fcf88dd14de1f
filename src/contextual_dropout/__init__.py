"""Contextual dropout: sample-dependent dropout for any PyTorch network."""

from contextual_dropout import estimators, schedules
from contextual_dropout.checks import SaturationWarning
from contextual_dropout.objective import ELBO, Step
from contextual_dropout.site import ContextualDropout, LazyContextualDropout

__all__ = [
    "ELBO",
    "ContextualDropout",
    "LazyContextualDropout",
    "SaturationWarning",
    "Step",
    "estimators",
    "schedules",
]
