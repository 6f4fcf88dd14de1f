"""Test results of a network: how often its "certain" answers were right, and what its layers keep on average."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from contextual_dropout.conversion.record import sites
from contextual_dropout.inspection.context import keep_probabilities
from contextual_dropout.replay.generators import isolated
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.report.html.predictions import tested_on
from contextual_dropout_lab.report.method_names import label_of
from contextual_dropout_lab.report.plots.style import NoData
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import noise_name, noisy_inputs
from contextual_dropout_lab.runs.run_data import images_of
from contextual_dropout_lab.serve.responses import histogram
from contextual_dropout_lab.store.networks import input_shape
from contextual_dropout_lab.store.results import Results

__all__ = ["TrackRecord", "track_record_of", "worth"]

#: The folder of records, if they are not beside the folder that the run is in.
RECORDS = Path("experiments/results")
#: Test images over which keep probabilities are averaged.
IMAGES = 200


@dataclass(frozen=True)
class TrackRecord:
    """The test results of one network.

    Attributes:
        worth: a sentence on what "certain" was worth; empty without a record of the run.
        usual: histograms, by layer, of the units' mean keep probabilities over test images with the noise of training;
            none where the data set is not at hand.
    """

    worth: str = ""
    usual: dict[str, list[int]] = field(default_factory=dict)


def track_record_of(folder: Path, model: nn.Module, config: RunConfig, threshold: float) -> TrackRecord:
    """Collect the test results that are found on this machine.

    Args:
        folder: of the run, or the file of its network.
        model: the network.
        config: of the run.
        threshold: certain is a p-value below it.
    """
    return TrackRecord(worth(_record(folder, config), config, threshold), _usual(model, config, input_shape(folder)))


def worth(record: dict[str, Any] | None, config: RunConfig, threshold: float) -> str:
    """A sentence on how often the network was certain, and right then, by its record; empty if that does not say.

    Example:
        >>> names = ("accurate_certain", "inaccurate_certain", "accurate_uncertain", "inaccurate_uncertain")
        >>> record = {"test": {"noise-0": {"pavpu": {"0.05": dict(zip(names, (72, 8, 10, 10)))}}}}
        >>> worth(record, RunConfig("digits", "clean", "mc-bernoulli", 0), 0.05)
        'Of its test images, MC dropout was certain of 80%, and right in 90% of these and 50% of the rest.'
    """
    counts = _at(record, "test", noise_name(config.noise_sd), "pavpu", f"{threshold:g}")
    if counts is None:
        return ""
    certain, rest = (
        (counts[f"accurate_{group}"], counts[f"accurate_{group}"] + counts[f"inaccurate_{group}"])
        for group in ("certain", "uncertain")
    )
    share = certain[1] / (certain[1] + rest[1])
    right = [
        f"{part / whole:.0%} of {name}" for name, (part, whole) in (("these", certain), ("the rest", rest)) if whole
    ]
    noise = f", with noise of sd {config.noise_sd:g}" if config.noise_sd else ""
    method = label_of(dataclasses.asdict(config))
    return f"Of its test images{noise}, {method} was certain of {share:.0%}, and right in {' and '.join(right)}."


def _record(folder: Path, config: RunConfig) -> dict[str, Any] | None:
    """The record of exactly this run: in the ``records`` beside ``work``, or where records are tracked."""
    run = (folder.parent if folder.suffix == ".safetensors" else folder).resolve()
    beside = [parent.with_name("records") for parent in run.parents if parent.name == "work"]
    for records in (*beside, RECORDS):
        with contextlib.suppress(ExperimentError):  # a page without the sentence is better than none
            if (found := Results(records, run).read(config)) is not None:
                return found
    return None


def _at(value: Any, *path: str) -> dict[str, float] | None:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


def _usual(model: nn.Module, config: RunConfig, shape: tuple[int, ...]) -> dict[str, list[int]]:
    if not sites(model):
        return {}
    try:
        images = images_of(tested_on(config, None).test_x)[:IMAGES]
    except (NoData, ExperimentError):
        return {}
    if tuple(images.shape[1:]) != shape:
        return {}
    x = images_of(next(noisy_inputs(images, config.noise_sd, config)))
    with isolated(0, [x.device]):
        return {name: histogram(keep.mean(0)) for name, keep in keep_probabilities(model, x).items()}
