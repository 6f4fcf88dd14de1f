"""Contextual dropout: sample-dependent dropout for any PyTorch network."""

from __future__ import annotations

from contextual_dropout import baselines, estimators, metrics, schedules, significance
from contextual_dropout.checks import CoupledRowsWarning, SaturationWarning
from contextual_dropout.context import freeze_context, keep_probabilities
from contextual_dropout.conversion.convert import contextualize, conversion, sites, strip
from contextual_dropout.conversion.parameters import count_parameters, parameter_groups, unfreeze_sites
from contextual_dropout.conversion.report import ConversionWarning
from contextual_dropout.modes import sampling
from contextual_dropout.objective import ELBO, Step
from contextual_dropout.predict import predict
from contextual_dropout.prediction import MultilabelPrediction, Prediction
from contextual_dropout.probe import Probe, SilentSiteError, probe
from contextual_dropout.regression import RegressionPrediction
from contextual_dropout.saving import load_sites, save_sites
from contextual_dropout.site import ContextualDropout, LazyContextualDropout
from contextual_dropout.streaming import predict_batches, predict_loader
from contextual_dropout.untrained import UntrainedSitesWarning

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
    "conversion",
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
