"""Contextual dropout: sample-dependent dropout for any PyTorch network."""

from contextual_dropout import estimators, metrics, schedules, significance
from contextual_dropout.checks import SaturationWarning
from contextual_dropout.modes import sampling
from contextual_dropout.objective import ELBO, Step
from contextual_dropout.predict import predict
from contextual_dropout.prediction import Prediction
from contextual_dropout.site import ContextualDropout, LazyContextualDropout

__all__ = [
    "ELBO",
    "ContextualDropout",
    "LazyContextualDropout",
    "Prediction",
    "SaturationWarning",
    "Step",
    "estimators",
    "metrics",
    "predict",
    "sampling",
    "schedules",
    "significance",
]
