"""Contextual dropout: sample-dependent dropout for any PyTorch network."""

from __future__ import annotations

from contextual_dropout import baselines, metrics, significance
from contextual_dropout._version import __version__ as __version__
from contextual_dropout.conversion.contextualize import contextualize, strip
from contextual_dropout.conversion.record import ConversionWarning, conversion_of, sites
from contextual_dropout.conversion.saving import load_sites, save_sites
from contextual_dropout.inspection.context import freeze_context, keep_probabilities
from contextual_dropout.inspection.parameters import count_parameters, parameter_groups, unfreeze_sites
from contextual_dropout.inspection.probe import Probe, SilentSiteError, probe
from contextual_dropout.nn.site import ContextualDropout, LazyContextualDropout
from contextual_dropout.nn.stochastic import sampling
from contextual_dropout.nn.untrained import UntrainedSitesWarning
from contextual_dropout.prediction.classification import MultilabelPrediction, Prediction
from contextual_dropout.prediction.loader import predict_batches, predict_loader
from contextual_dropout.prediction.predict import predict
from contextual_dropout.prediction.regression import RegressionPrediction
from contextual_dropout.training import estimators, schedules
from contextual_dropout.training.checks import CoupledRowsWarning, SaturationWarning
from contextual_dropout.training.objective import ELBO, Step

__all__ = [
    "ELBO",
    "ContextualDropout",
    "ConversionWarning",
    "CoupledRowsWarning",
    "LazyContextualDropout",
    "MultilabelPrediction",
    "Prediction",
    "Probe",
    "RegressionPrediction",
    "SaturationWarning",
    "SilentSiteError",
    "Step",
    "UntrainedSitesWarning",
    "baselines",
    "contextualize",
    "conversion_of",
    "count_parameters",
    "estimators",
    "freeze_context",
    "keep_probabilities",
    "load_sites",
    "metrics",
    "parameter_groups",
    "predict",
    "predict_batches",
    "predict_loader",
    "probe",
    "sampling",
    "save_sites",
    "schedules",
    "significance",
    "sites",
    "strip",
    "unfreeze_sites",
]
