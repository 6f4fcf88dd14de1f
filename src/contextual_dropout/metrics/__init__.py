"""What torchmetrics lacks: PAvPU, predictive log-likelihood, selective prediction, out-of-distribution detection."""

from contextual_dropout.metrics.likelihood import double_softmax_log_likelihood, predictive_log_likelihood
from contextual_dropout.metrics.ood import OutOfDistribution
from contextual_dropout.metrics.pavpu import PAvPU
from contextual_dropout.metrics.selective import RiskCoverage, risk_coverage_curve

__all__ = [
    "OutOfDistribution",
    "PAvPU",
    "RiskCoverage",
    "double_softmax_log_likelihood",
    "predictive_log_likelihood",
    "risk_coverage_curve",
]
