"""The paper's scores, as data (Fan et al., ICLR 2021).

Accuracy and PAvPU are in percent. The log-likelihoods are in the paper's convention, a softmax of averaged
probabilities (erratum 4): compare them with ``double_softmax_log_likelihood`` only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "CLEAN_TO_NOISY",
    "IMAGENET",
    "IN_THE_PAPER",
    "LARGEST_LOG_LIKELIHOOD",
    "PARAMETERS",
    "PARAMETERS_BY_REDUCTION",
    "RELEASED_CODE",
    "REPORTED",
    "RESNET18_COST",
    "RESULTS",
    "TRAINING",
    "VQA",
    "PaperScore",
    "ReleasedCode",
    "comparable",
    "exceeded",
    "largest_log_likelihood",
    "reported_for",
]


@dataclass(frozen=True)
class PaperScore:
    """A score as printed.

    Attributes:
        value: the score.
        sd: its error bar over 5 runs; None where the paper gives none.
        decimals: that are printed.
    """

    value: float
    sd: float | None = None
    decimals: int = 2


_Row = dict[str, PaperScore]
_Entry = float | tuple[float, float] | tuple[float, float, int] | PaperScore


def _reported(entry: _Entry) -> PaperScore:
    if isinstance(entry, PaperScore):
        return entry
    return PaperScore(*entry) if isinstance(entry, tuple) else PaperScore(entry)


def _row(accuracy: _Entry, pavpu: tuple[_Entry, _Entry, _Entry] | None, log_likelihood: _Entry | None) -> _Row:
    """A method: accuracy, PAvPU at .01, .05 and .1, log-likelihood; each as the fields of PaperScore."""
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
    "gating-dropout": _row(86.70, None, -1.71) | {"pavpu-0.05": PaperScore(87.01)},
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
#: By setting, method and metric: MNIST.
RESULTS: Mapping[str, Mapping[str, Mapping[str, PaperScore]]] = {"noisy": _NOISY, "original": _ORIGINAL}

#: Tables "Complete results on CIFAR-10 with WRN" and "Complete log likelihood results on CIFAR-10 with WRN".
CIFAR10: Mapping[str, Mapping[str, Mapping[str, PaperScore]]] = {
    "original": {
        "mc-bernoulli": _row(94.58, (78.73, 82.34, 84.21), -1.91),
        "mc-gaussian": _row(93.81, (92.59, 93.24, 93.85), -1.54),
        "concrete": _row(94.60, (73.51, 78.41, 81.01), -1.98),
        "contextual-bernoulli": _row((95.92, 0.10), ((95.25, 0.23), (95.74, 0.12), (96.02, 0.16)), -1.24),
        "contextual-gaussian": _row((96.04, 0.1), ((95.42, 0.07), (95.85, 0.07), (96.10, 0.06)), -1.19),
    },
    "noisy": {
        "mc-bernoulli": _row(79.51, (72.89, 74.43, 75.04), -1.93),
        "mc-gaussian": _row(79.33, (80.43, 81.24, 82.31), -1.72),
        "concrete": _row(79.34, (72.72, 73.89, 74.72), PaperScore(-2.0, decimals=1)),
        "contextual-bernoulli": _row((81.49, 0.19), ((82.56, 0.50), (83.28, 0.31), (83.91, 0.28)), -1.47),
        "contextual-gaussian": _row((81.64, 0.31), ((82.38, 0.41), (82.80, 0.36), (83.43, 0.36)), -1.51),
    },
}
#: Tables "Results on CIFAR-100 with WRN" and "Complete results on CIFAR-100 with WRN".
CIFAR100: Mapping[str, Mapping[str, Mapping[str, PaperScore]]] = {
    "original": {
        "mc-bernoulli": _row(79.03, (56.90, 61.54, 64.14), -4.49),
        "mc-gaussian": _row(76.63, (77.35, 78.05, 78.26), -3.93),
        "concrete": _row(79.19, (59.45, 64.14, 66.63), -4.50),
        "contextual-bernoulli": _row((80.85, 0.05), ((81.04, 0.28), (81.56, 0.31), (81.86, 0.21)), (-3.56, 0.02)),
        "contextual-gaussian": _row((80.93, 0.18), ((81.43, 0.1), (81.69, 0.16), (82.02, 0.14)), (-3.43, 0.07)),
    },
    "noisy": {
        "mc-bernoulli": _row(52.01, (53.86, 54.25, 54.63), -4.55),
        "mc-gaussian": _row(51.38, (56.83, 57.02, 57.31), -4.23),
        "concrete": _row(51.58, (57.62, 56.61, 55.89), -4.56),
        "contextual-bernoulli": _row((53.64, 0.45), ((58.29, 0.30), (58.63, 0.50), (59.36, 0.49)), (-3.73, 0.04)),
        "contextual-gaussian": _row((53.72, 0.34), ((58.01, 0.6), (58.49, 0.43), (58.95, 0.37)), (-3.81, 0.03)),
    },
}
#: Table "Results on ImageNet with ResNet-18", which does not say at which threshold its PAvPU is: we read .05.
IMAGENET: Mapping[str, Mapping[str, Mapping[str, PaperScore]]] = {
    "finetuned": {
        "plain": _row(69.75, None, None),
        "mc-gaussian": _row(69.46, None, None) | {"pavpu-0.05": PaperScore(72.86)},
        "contextual-gaussian": _row((70.03, 0.07), None, None) | {"pavpu-0.05": PaperScore(74.68, 0.08)},
    },
    "scratch": {"contextual-gaussian": _row((70.29, 0.09), None, None) | {"pavpu-0.05": PaperScore(76.47, 0.12)}},
}
#: The same table: parameters and seconds a step, by the names of our benchmark.
RESNET18_COST: Mapping[str, tuple[float, float]] = {
    "plain": (11.70e6, 1.44),
    "gaussian dropout": (11.70e6, 1.50),
    "contextual gaussian": (11.88e6, 1.64),
}
#: Table "Accuracy and PAvPU on visual question answering", which does not say at which threshold its PAvPU is: we read
#: .05. Its "Bernoulli" is MCAN's own score and has neither samples nor a noisy version: it is not here.
VQA: Mapping[str, Mapping[str, Mapping[str, PaperScore]]] = {
    "original": {
        "mc-bernoulli": _row(66.95, None, None) | {"pavpu-0.05": PaperScore(70.04)},
        "mc-gaussian": _row(66.96, None, None) | {"pavpu-0.05": PaperScore(70.77)},
        "concrete": _row(66.82, None, None) | {"pavpu-0.05": PaperScore(71.02)},
        "contextual-bernoulli": _row((67.42, 0.06), None, None) | {"pavpu-0.05": PaperScore(71.65, 0.06)},
        "contextual-gaussian": _row((67.35, 0.03), None, None) | {"pavpu-0.05": PaperScore(71.62, 0.02)},
    },
    "noisy": {
        "mc-bernoulli": _row(61.45, None, None) | {"pavpu-0.05": PaperScore(66.11)},
        "mc-gaussian": _row(62.75, None, None) | {"pavpu-0.05": PaperScore(67.42)},
        "concrete": _row(61.47, None, None) | {"pavpu-0.05": PaperScore(65.94)},
        "contextual-bernoulli": _row((63.73, 0.08), None, None) | {"pavpu-0.05": PaperScore(68.57, 0.11)},
        "contextual-gaussian": _row((63.82, 0.05), None, None) | {"pavpu-0.05": PaperScore(68.64, 0.04)},
    },
}
#: All of these by data set.
REPORTED: Mapping[str, Mapping[str, Mapping[str, Mapping[str, PaperScore]]]] = {
    "mnist": RESULTS,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "imagenet": IMAGENET,
    "vqa-v2": VQA,
}
#: Data sets of the paper that small ones of ours stand for.
_STANDS_FOR = {"tiny-imagenet-20": "imagenet", "easy-vqa": "vqa-v2"}


def reported_for(data: str, setting: str) -> Mapping[str, Mapping[str, PaperScore]]:
    """The paper's scores by method and metric for a data set, or for that which it stands for; none where it has none.

    Example:
        >>> reported_for("easy-vqa", "noisy")["concrete"]["accuracy"].value
        61.47
    """
    return REPORTED.get(_STANDS_FOR.get(data, data), {}).get(setting, {})


#: "Out of distribution (OOD) evaluation": trained on clean data, tested on noisy data, by method and metric. The paper
#: says "contextual dropout" and "MC dropout" and not which family: we read Bernoulli.
CLEAN_TO_NOISY: Mapping[str, Mapping[str, PaperScore]] = {
    "mc-bernoulli": {"accuracy": PaperScore(75.22), "pavpu-0.05": PaperScore(74.61)},
    "concrete": {"accuracy": PaperScore(74.93), "pavpu-0.05": PaperScore(75.49)},
    "contextual-bernoulli": {"accuracy": PaperScore(78.08), "pavpu-0.05": PaperScore(78.49)},
}

#: The paper's names of our methods, where they differ from ours: its contextual Bernoulli dropout is trained by ARM,
#: and is compared with ours by either estimator.
IN_THE_PAPER: Mapping[str, str] = {"contextual-bernoulli-arm": "contextual-bernoulli"}

#: Epochs, and images of the training set (appendix, "Image Classification"): MNIST.
TRAINING = (200, 60_000)
#: The same of the others, epochs by setting. Not of VQA, of which no run of ours is tested on all questions.
_IMAGES = {"mnist": TRAINING[1], "cifar10": 50_000, "cifar100": 50_000, "imagenet": 1_281_167}
_EPOCHS = {"noisy": TRAINING[0], "original": TRAINING[0], "scratch": 90, "finetuned": 1}
_NETWORKS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "mnist": ("mlp", {}),
    "cifar10": ("wide_resnet", {"depth": 28, "width": 10}),
    "cifar100": ("wide_resnet", {"depth": 28, "width": 10}),
    "imagenet": ("resnet18", {}),
}


def comparable(record: Mapping[str, Any]) -> bool:
    """Whether scores of a run may stand beside the paper's: its data, network, test set and length of training."""
    config: Mapping[str, Any] = record["config"]
    data, setting = config["data"], config["setting"]
    if (
        data not in _NETWORKS
        or setting not in REPORTED[data]
        or config["split"] != "test"
        or config.get("test_examples") is not None
    ):
        return False
    network = (config.get("network", "mlp"), config.get("network_options", {}))
    return network == _NETWORKS[data] and (config["epochs"], record["data"]["train"]) == (
        _EPOCHS[setting],
        _IMAGES[data],
    )


#: Table "Model size comparison among different methods", column MLP.
PARAMETERS: Mapping[str, int] = {
    "mc-bernoulli": 267_000,
    "mc-gaussian": 267_000,
    "concrete": 267_000,
    "bayes-by-backprop": 534_000,
    "contextual-bernoulli": 311_000,
    "contextual-gaussian": 311_000,
}
#: The parameters of the text's architecture, by the reduction gamma (erratum 11): the text says 10, the table is of 32.
PARAMETERS_BY_REDUCTION: Mapping[int, int] = {10: 410_219, 32: 311_465}


def largest_log_likelihood(classes: int) -> float:
    """1 - log(e + C - 1), what a perfect classifier of C classes has in the paper's convention (erratum 4).

    Example:
        >>> round(largest_log_likelihood(10), 3), round(largest_log_likelihood(100), 3)
        (-1.461, -3.622)
    """
    return 1 - math.log(math.e + classes - 1)


#: For 10 classes.
LARGEST_LOG_LIKELIHOOD = largest_log_likelihood(10)
_CLASSES = {"mnist": 10, "cifar10": 10, "cifar100": 100}


def exceeded(data: str, setting: str) -> float | None:
    """The largest log-likelihood of the paper's convention, if scores that it reports are above it; else None.

    Example:
        >>> exceeded("cifar10", "original"), exceeded("easy-vqa", "original")
        (-1.461..., None)
    """
    if data not in _CLASSES:
        return None
    rows = reported_for(data, setting).values()
    found = [row["double_softmax_log_likelihood"].value for row in rows if "double_softmax_log_likelihood" in row]
    ceiling = largest_log_likelihood(_CLASSES[data])
    return ceiling if max(found, default=ceiling) > ceiling else None


@dataclass(frozen=True)
class ReleasedCode:
    """Results of the authors' released code when it is run (erratum 10): measured by us, not printed in the paper.

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
