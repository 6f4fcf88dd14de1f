"""What torchmetrics lacks: PAvPU, log-likelihood, selective prediction, out-of-distribution detection, VQA accuracy."""

from contextual_dropout.metrics.likelihood import double_softmax_log_likelihood, predictive_log_likelihood
from contextual_dropout.metrics.ood import OutOfDistribution
from contextual_dropout.metrics.pavpu import PAvPU
from contextual_dropout.metrics.selective import RiskCoverage, risk_coverage_curve
from contextual_dropout.metrics.vqa import VQAAccuracy, soft_accuracy

__all__ = [
    "OutOfDistribution",
    "PAvPU",
    "RiskCoverage",
    "VQAAccuracy",
    "double_softmax_log_likelihood",
    "predictive_log_likelihood",
    "risk_coverage_curve",
    "soft_accuracy",
]
