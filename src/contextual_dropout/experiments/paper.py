"""The paper's figures for the MLP on MNIST, as data (Fan et al., ICLR 2021).

Accuracy and PAvPU are in percent. The log-likelihoods are in the paper's convention, a softmax of averaged
probabilities (erratum 4): compare them with ``double_softmax_log_likelihood`` only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "CLEAN_TO_NOISY",
    "IN_THE_PAPER",
    "LARGEST_LOG_LIKELIHOOD",
    "PARAMETERS",
    "PARAMETERS_BY_REDUCTION",
    "RELEASED_CODE",
    "RESULTS",
    "TRAINING",
    "ReleasedCode",
    "Reported",
]


@dataclass(frozen=True)
class Reported:
    """A figure as printed.

    Attributes:
        value: the figure.
        sd: its error bar over 5 runs; None where the paper gives none.
        decimals: that are printed.
    """

    value: float
    sd: float | None = None
    decimals: int = 2


_Row = dict[str, Reported]
_Entry = float | tuple[float, float] | tuple[float, float, int]


def _reported(entry: _Entry) -> Reported:
    return Reported(*entry) if isinstance(entry, tuple) else Reported(entry)


def _row(accuracy: _Entry, pavpu: tuple[_Entry, _Entry, _Entry] | None, log_likelihood: _Entry | None) -> _Row:
    """A method: accuracy, PAvPU at .01, .05 and .1, log-likelihood; each as the fields of Reported."""
    row = {"accuracy": _reported(accuracy)}
    for threshold, entry in zip(("0.01", "0.05", "0.1"), pavpu or (), strict=False):
        row[f"pavpu-{threshold}"] = _reported(entry)
    if log_likelihood is not None:
        row["double_softmax_log_likelihood"] = _reported(log_likelihood)
    return row


#: Tables "Results on noisy MNIST with MLP" (accuracy, PAvPU at .05, log-likelihood) and "Complete results on MNIST with
#: MLP" (PAvPU at .01 and .1).
_NOISY: dict[str, _Row] = {
    "mc-bernoulli": _row(86.36, (84.29, 85.63, 86.10), -1.72),
    "mc-gaussian": _row(86.31, (83.99, 85.64, 86.03), -1.72),
    "concrete": _row(86.52, (85.98, 86.77, 86.92), -1.68),
    "bayes-by-backprop": _row(86.55, (86.89, 87.13, 87.26), -2.30),
    "gating": _row(86.20, None, -1.81),
    "gating-dropout": _row(86.70, None, -1.71) | {"pavpu-0.05": Reported(87.01)},
    "contextual-bernoulli": _row((87.43, 0.39), ((87.75, 0.24), (87.81, 0.23), (87.89, 0.25)), (-1.41, 0.01)),
    "contextual-gaussian": _row((87.35, 0.33), ((87.64, 0.19), (87.72, 0.29), (87.78, 0.32)), (-1.43, 0.01)),
}
#: Tables "Complete results on MNIST with MLP" and "Loglikelihood on original MNIST with MLP".
_ORIGINAL: dict[str, _Row] = {
    "mc-bernoulli": _row(98.62, (98.25, 98.39, 98.44), (-1.4840, 0.0004, 4)),
    "mc-gaussian": _row(98.67, (98.23, 98.41, 98.46), (-1.4820, 0.0003, 4)),
    "concrete": _row(98.61, (98.43, 98.50, 98.57), (-1.4822, 0.0012, 4)),
    "bayes-by-backprop": _row(98.44, (98.26, 98.42, 98.56), (-1.4806, 0.0007, 4)),
    "contextual-bernoulli": _row((99.08, 0.04), ((98.74, 0.17), (98.92, 0.08), (99.09, 0.08)), (-1.4537, 0.0005, 4)),
    "contextual-gaussian": _row((98.92, 0.09), ((98.71, 0.02), (98.90, 0.08), (99.03, 0.07)), (-1.4589, 0.0005, 4)),
}
#: By setting, method and metric.
RESULTS: Mapping[str, Mapping[str, Mapping[str, Reported]]] = {"noisy": _NOISY, "original": _ORIGINAL}

#: "Out of distribution (OOD) evaluation": trained on clean data, tested on noisy data, by method and metric. The paper
#: says "contextual dropout" and "MC dropout" and not which family: we read Bernoulli.
CLEAN_TO_NOISY: Mapping[str, Mapping[str, Reported]] = {
    "mc-bernoulli": {"accuracy": Reported(75.22), "pavpu-0.05": Reported(74.61)},
    "concrete": {"accuracy": Reported(74.93), "pavpu-0.05": Reported(75.49)},
    "contextual-bernoulli": {"accuracy": Reported(78.08), "pavpu-0.05": Reported(78.49)},
}

#: What the paper calls a method of ours, where it is not our name: its contextual Bernoulli dropout is trained by ARM,
#: and is compared with ours by either estimator.
IN_THE_PAPER: Mapping[str, str] = {"contextual-bernoulli-arm": "contextual-bernoulli"}

#: Epochs, and images of the training set (appendix, "Image Classification").
TRAINING = (200, 60_000)

#: Table "Model size comparison among different methods", column MLP.
PARAMETERS: Mapping[str, int] = {
    "mc-bernoulli": 267_000,
    "mc-gaussian": 267_000,
    "concrete": 267_000,
    "bayes-by-backprop": 534_000,
    "contextual-bernoulli": 311_000,
    "contextual-gaussian": 311_000,
}
#: What the architecture of the text has, by the reduction gamma (erratum 11): the text says 10, the table is of 32.
PARAMETERS_BY_REDUCTION: Mapping[int, int] = {10: 410_219, 32: 311_465}

#: 1 - log(e + C - 1) for C = 10: what a perfect classifier has in the paper's convention, -1.461 (erratum 4).
LARGEST_LOG_LIKELIHOOD = 1 - math.log(math.e + 9)


@dataclass(frozen=True)
class ReleasedCode:
    """What the authors' released code does when it is run (erratum 10): measured by us, not printed in the paper.

    Attributes:
        epochs: of training, on noisy MNIST.
        sd_over_samples: of the keep probability, at the three sites.
        prior: the learned prior keep probability, before and after training.
        accuracy_contextual: in percent.
        accuracy_frozen: with every unit frozen at its mean keep probability.
    """

    epochs: int
    sd_over_samples: tuple[float, float, float]
    prior: tuple[float, float]
    accuracy_contextual: float
    accuracy_frozen: float


#: Bernoulli contextual dropout.
RELEASED_CODE = ReleasedCode(200, (0.004, 0.025, 0.016), (0.80, 0.91), 87.33, 87.23)
