"""Metrics beyond torchmetrics: PAvPU, log-likelihood, selective prediction, out-of-distribution, VQA accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextual_dropout.metrics.calibration import expected_calibration_error
from contextual_dropout.metrics.likelihood import double_softmax_log_likelihood, predictive_log_likelihood
from contextual_dropout.metrics.ood import out_of_distribution
from contextual_dropout.metrics.selective import risk_coverage_curve
from contextual_dropout.metrics.vqa import soft_accuracy

if TYPE_CHECKING:
    from contextual_dropout.metrics.stateful import OutOfDistribution, PAvPU, RiskCoverage, VQAAccuracy

__all__ = [
    "OutOfDistribution",
    "PAvPU",
    "RiskCoverage",
    "VQAAccuracy",
    "double_softmax_log_likelihood",
    "expected_calibration_error",
    "out_of_distribution",
    "predictive_log_likelihood",
    "risk_coverage_curve",
    "soft_accuracy",
]


def __getattr__(name: str) -> Any:
    """Import the classes when one is first asked for: the functions do without torchmetrics, which takes seconds."""
    if name in __all__:
        from contextual_dropout.metrics import stateful

        return getattr(stateful, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
