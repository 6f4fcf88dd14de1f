"""The curves that a report draws of a run's predictions, in a few kilobytes that are tracked beside its record.

Predictions are large and stay where the run was; their curves go wherever the records go.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contextual_dropout.metrics.selective import risk_coverage_curve
from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.config_checks import short
from contextual_dropout_lab.runs.evaluation import noise_name
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.runs.tasks import task_named
from contextual_dropout_lab.store.files import read_json, remove_leftovers, write_json
from contextual_dropout_lab.store.results import Results

__all__ = [
    "BARS",
    "BINS",
    "THRESHOLDS",
    "Curves",
    "curve_records",
    "curves_of",
    "curves_path",
    "read_curves",
    "require_numbers",
    "write_curves",
]

#: Intervals of the confidence, as many as the calibration error has, and of the p-value.
BINS, BARS = 15, 20
#: How many seconds to wait for another process that is at the same run.
PATIENCE = 600.0
#: Points of a risk-coverage curve.
POINTS = 100
#: Thresholds of p-values: evenly on a logarithmic axis, and the paper's.
THRESHOLDS = tuple(sorted({*(float(f"{10 ** (power / 4):.3g}") for power in range(-24, 1)), 0.05}))

Numbers = list[float]
#: The expected form of the fields of curves, by their type.
EXPECTED = {
    "int": "a whole number above 0",
    "float": "a finite number",
    "Numbers": "a list of finite numbers",
    "dict[str, Numbers]": "lists of finite numbers by name",
}
#: The columns of those that are tables; without p-values there is only the first table.
COLUMNS = {
    "reliability": ("predictions", "confidence", "right"),
    "certain": ("predictions", "right"),
    "p_values": ("right", "wrong"),
}


@dataclass(frozen=True)
class Curves:
    """Curves of one run, or of several on the same test set: all is counts, sums or means over draws, so runs add up.

    Attributes:
        samples: K.
        draws: of the test noise, over all runs.
        examples: of the test set.
        reliability: "predictions", and the sums of their "confidence" and of "right" answers, in each of equal
            intervals of the confidence.
        coverage: shares of the examples that are not refused.
        risk: the share of wrong answers among these, where the highest "entropy" or "p-value" is refused.
        thresholds: of p-values.
        certain: "predictions" with a p-value below each threshold, and "right" ones among them.
        p_values: "right" and "wrong" answers in each of equal intervals of the p-value.
        constant: the share of p-values that are 0, as those of equal samples are.
    """

    samples: int
    draws: int
    examples: int
    reliability: dict[str, Numbers]
    coverage: Numbers
    risk: dict[str, Numbers]
    thresholds: Numbers
    certain: dict[str, Numbers]
    p_values: dict[str, Numbers]
    constant: float

    def __add__(self, other: Curves) -> Curves:
        """The curves of both runs together."""
        if (self.examples, self.coverage, self.thresholds) != (other.examples, other.coverage, other.thresholds):
            raise ValueError("runs on other examples, or with other thresholds, have no curves in common")
        whole = self.draws + other.draws
        own, others = self.draws / whole, other.draws / whole

        def added(one: dict[str, Numbers], two: dict[str, Numbers], a: float = 1, b: float = 1) -> dict[str, Numbers]:
            return {
                name: [a * x + b * y for x, y in zip(values, two[name], strict=True)]
                for name, values in one.items()
                if name in two
            }

        return Curves(
            samples=self.samples,
            draws=whole,
            examples=self.examples,
            reliability=added(self.reliability, other.reliability),
            coverage=self.coverage,
            risk=added(self.risk, other.risk, own, others),
            thresholds=self.thresholds,
            certain=added(self.certain, other.certain),
            p_values=added(self.p_values, other.p_values),
            constant=own * self.constant + others * other.constant,
        )


def curves_of(predictions: Sequence[Classification], targets: Tensor, task: str = "classification") -> Curves:
    """The curves of predictions of the same examples, one for each draw of the noise.

    Args:
        predictions: of N examples; those of one sample have no p-values.
        targets: of the examples.
        task: what they mean.

    Raises:
        ExperimentError: some of the predictions are not numbers.
    """
    require_numbers(predictions)
    several = len(predictions[0].samples) > 1
    correct = torch.stack([task_named(task).accuracy(each.label, targets) for each in predictions])  # (D, N)
    confidence = torch.stack([each.confidence for each in predictions])
    scores = {"entropy": torch.stack([each.entropy for each in predictions])}
    if several:
        scores["p-value"] = torch.stack([each.p_value for each in predictions])
    places = _places(len(targets))
    p_value = scores.get("p-value", torch.empty(0)).flatten().double()
    return Curves(
        samples=len(predictions[0].samples),
        draws=len(predictions),
        examples=len(targets),
        reliability=_reliability(confidence.flatten(), correct.flatten()),
        coverage=_short((places + 1).double() / len(targets)),
        risk={name: _risk(each, correct, places) for name, each in scores.items()},
        thresholds=list(THRESHOLDS),
        certain=_certain(p_value, correct.flatten()) if several else {},
        p_values=_p_values(p_value, correct.flatten()) if several else {},
        constant=round((p_value == 0).double().mean().item(), 6) if several else 0.0,
    )


def curves_path(results: Results, config: RunConfig) -> Path:
    """The curves' file, in a folder beside the record."""
    record = results.path(config)
    return record.parent / "curves" / record.name


def require_numbers(predictions: Iterable[Classification]) -> None:
    """Raise an ExperimentError where some of the predictions are not numbers."""
    if not all(each.samples.isfinite().all() for each in predictions):
        raise ExperimentError("some of its predictions are not numbers (NaN or infinite): repeat the run")


def write_curves(results: Results, config: RunConfig, predictions: Sequence[Classification], targets: Tensor) -> None:
    """Store the curves of a run at its own noise level beside its record.

    Args:
        results: where the records are.
        config: the run.
        predictions: at its noise level, one for each draw.
        targets: of the test examples.
    """
    curves = dataclasses.asdict(curves_of(predictions, targets, config.task))
    write_json(curves_path(results, config), {"digest": config.digest, "noise": noise_name(config.noise_sd), **curves})


def read_curves(results: Results, config: RunConfig) -> Curves | None:
    """The curves of exactly this run at its own noise level; None if there are none.

    Raises:
        ExperimentError: the file is damaged.
    """
    path = curves_path(results, config)
    if not path.exists():
        return None
    values = read_json(path)
    try:
        if (values.pop("digest"), values.pop("noise")) != (config.digest, noise_name(config.noise_sd)):
            return None
        curves = Curves(**values)
        _check(curves)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ExperimentError(f"{path} has no curves of a run ({error}): delete it to have it made again") from error
    return curves


def curve_records(configs: Iterable[RunConfig], results: Results, data_directory: Any = None) -> list[str]:
    """Write the curves of finished runs that kept their predictions and have no curves yet.

    Args:
        configs: the runs.
        results: where records and predictions are.
        data_directory: where the data are, if not in the usual places.

    Returns:
        The names of the runs whose curves were written.
    """
    written = []
    for config in configs:
        record = results.read(config)
        if record is None or read_curves(results, config) is not None or (kept := results.predictions(config)) is None:
            continue
        examples = load_examples(dataclasses.replace(config, ood=()), data_directory)
        draws = [each for name, each in kept.items() if name.startswith(f"{noise_name(config.noise_sd)}/")]
        if draws and record["data"]["sha256"].get(config.split) == examples.sha256.get(config.split):
            with results.locked(config.name, PATIENCE):
                remove_leftovers(curves_path(results, config))
                write_curves(results, config, draws, examples.test_y)
            written.append(config.name)
    return written


def _reliability(confidence: Tensor, correct: Tensor) -> dict[str, Numbers]:
    place = (confidence * BINS).long().clamp(max=BINS - 1)
    columns = {"predictions": torch.ones_like(confidence), "confidence": confidence, "right": correct}
    return {name: _sums(place, each, BINS) for name, each in columns.items()}


def _places(count: int) -> Tensor:
    """The number of examples less one at each point; the error of fewer than a hundredth is 0 or noise."""
    first = max(count // 100, 1) - 1
    places = torch.linspace(first, count - 1, POINTS, dtype=torch.float64).round().int().tolist()
    return torch.tensor(sorted(set(places)))


def _risk(uncertainty: Tensor, correct: Tensor, places: Tensor) -> Numbers:
    draws = zip(uncertainty, correct, strict=True)
    return _short(torch.stack([risk_coverage_curve(*draw)[1] for draw in draws]).mean(0)[places])


def _certain(p_value: Tensor, correct: Tensor) -> dict[str, Numbers]:
    ordered, order = p_value.sort()
    right = torch.cat([torch.zeros(1, dtype=torch.float64), correct[order].double().cumsum(0)])
    counts = torch.searchsorted(ordered, torch.tensor(THRESHOLDS, dtype=torch.float64))
    return {"predictions": _short(counts), "right": _short(right[counts])}


def _p_values(p_value: Tensor, correct: Tensor) -> dict[str, Numbers]:
    # 0.05 must begin the second bar, so bars are found by comparison: 20 * 0.05 may round to either side.
    place = torch.bucketize(p_value, torch.arange(1, BARS, dtype=torch.float64) / BARS, right=True)
    return {name: _sums(place, each, BARS) for name, each in (("right", correct), ("wrong", 1 - correct))}


def _sums(place: Tensor, values: Tensor, count: int) -> Numbers:
    return _short(torch.zeros(count, dtype=torch.float64).index_add(0, place, values.double()))


def _short(values: Tensor) -> Numbers:
    """The number with six digits, and without decimals where it has none."""
    found = (float(f"{value:.6g}") if abs(value) < 1e5 else round(value) for value in values.double().tolist())
    return [int(value) if value == int(value) else value for value in found]


def _check(curves: Curves) -> None:
    """Raise a ValueError if a report cannot draw a field."""
    for field in dataclasses.fields(Curves):
        if not _sound(value := getattr(curves, field.name), str(field.type)):
            raise ValueError(f"{field.name} is {short(value)}: expected {EXPECTED[str(field.type)]}")
    for name, columns in COLUMNS.items():
        found: dict[str, Numbers] = getattr(curves, name)
        expected = columns if name == "reliability" or curves.samples > 1 else ()
        if sorted(found) != sorted(expected) or len({len(column) for column in found.values()}) > 1:
            raise ValueError(f"{name} is {short(found)}: expected columns {expected} of one length")


def _sound(value: Any, kind: str) -> bool:
    """Whether it is what :data:`EXPECTED` has for the kind."""
    if kind.startswith("dict"):
        return isinstance(value, dict) and all(_sound(each, "Numbers") for each in value.values())
    if kind == "Numbers":
        return isinstance(value, list) and all(_sound(each, "float") for each in value)
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return number and (kind == "float" or (isinstance(value, int) and value > 0))
