"""The metrics: their names in print, and where records have them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ACCURACY",
    "AURC_ENTROPY",
    "AURC_P_VALUE",
    "BRIER",
    "CALIBRATION_ERROR",
    "DOUBLE_SOFTMAX",
    "LOG_LIKELIHOOD",
    "PAVPU_01",
    "PAVPU_05",
    "PAVPU_10",
    "Metric",
]


@dataclass(frozen=True)
class Metric:
    """A score on a test set.

    Attributes:
        key: its name in ``experiments.paper``.
        label: its name in print.
        path: where it is in ``record["test"][noise]``.
        decimals: that are printed.
    """

    key: str
    label: str
    path: tuple[str, ...]
    decimals: int


def _pavpu(threshold: str) -> Metric:
    return Metric(f"pavpu-{threshold}", f"PAvPU({threshold[1:]})", ("pavpu", threshold, "value"), 2)


def _plain(key: str, label: str, decimals: int) -> Metric:
    return Metric(key, label, (key,), decimals)


ACCURACY = _plain("accuracy", "Accuracy", 2)
PAVPU_01, PAVPU_05, PAVPU_10 = _pavpu("0.01"), _pavpu("0.05"), _pavpu("0.1")
LOG_LIKELIHOOD = _plain("log_likelihood", "Log-likelihood", 4)
DOUBLE_SOFTMAX = _plain("double_softmax_log_likelihood", "Log-likelihood (paper's convention)", 4)
BRIER = _plain("brier", "Brier score", 4)
CALIBRATION_ERROR = _plain("calibration_error", "Calibration error", 2)
AURC_ENTROPY = _plain("aurc_entropy", "AURC (entropy)", 4)
AURC_P_VALUE = _plain("aurc_p_value", "AURC (p-value)", 4)
