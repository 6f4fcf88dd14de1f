"""The records of an experiment, by setting and method, and statistics over their seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.report.layer_names import layer_labels
from contextual_dropout_lab.report.method_names import label, label_of, ordered
from contextual_dropout_lab.report.metric_names import Metric
from contextual_dropout_lab.report.run_records import read_records
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.store.files import read_json
from contextual_dropout_lab.store.results import Results

__all__ = ["ReportError", "Runs", "Statistic", "Summary", "summarise", "summarise_sound"]


class ReportError(ValueError):
    """The error for records that cannot be reported, with what to do."""


@dataclass(frozen=True)
class Statistic:
    """A score over seeds.

    Example:
        >>> accuracy = Statistic({0: 87.0, 1: 88.0})
        >>> accuracy.mean, round(accuracy.sd, 4), accuracy.n
        (87.5, 0.7071, 2)
    """

    by_seed: dict[int, float]

    @property
    def n(self) -> int:
        """The number of seeds."""
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.by_seed.values())

    @property
    def sd(self) -> float | None:
        """The standard deviation of the sample, with n - 1; None for one seed."""
        return statistics.stdev(self.by_seed.values()) if self.n > 1 else None


@dataclass(frozen=True)
class Runs:
    """All records of one method in one setting; they differ in their seeds only.

    Attributes:
        setting: e.g. "noisy".
        method: e.g. "concrete".
        records: by seed.
        ensemble: ensembles of these runs; None where they were not measured.
    """

    setting: str
    method: str
    records: dict[int, dict[str, Any]]
    ensemble: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """The method's name in print."""
        return label_of(self.first["config"])

    @property
    def seeds(self) -> list[int]:
        """The seeds that are done."""
        return list(self.records)

    @property
    def first(self) -> dict[str, Any]:
        """The record of the first seed: for what all seeds share."""
        return self.records[self.seeds[0]]

    @property
    def own_noise(self) -> str:
        """The noise level that the runs were trained at: records have it first."""
        return str(next(iter(self.first["test"])))

    def at(self, *path: str) -> Statistic | None:
        """The number at ``path`` over the records that have it; None if none has."""
        found = {seed: _lookup(record, path) for seed, record in self.records.items()}
        values = {seed: float(value) for seed, value in found.items() if value is not None}
        return Statistic(values) if values else None

    def test(self, metric: Metric, noise: str | None = None) -> Statistic | None:
        """A metric on the test set, at the runs' own noise level if none is named."""
        return self.at("test", noise or self.own_noise, *metric.path)

    @property
    def site_labels(self) -> dict[str, str]:
        """Names in print of the sites, in call order."""
        config, sites = self.first["config"], self.first.get("drop_probabilities", {}).get("sites", {})
        return layer_labels(list(sites), config.get("network", "mlp"), config["hidden"])


@dataclass(frozen=True)
class Summary:
    """All scores and values of an experiment.

    Attributes:
        experiment: its name.
        runs: by setting and method.
        faults: files that cannot be read, setting/method/file, and what is wrong with them.
    """

    experiment: str
    runs: dict[tuple[str, str], Runs]
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> list[str]:
        """The settings with records."""
        return list(dict.fromkeys(setting for setting, _ in self.runs))

    def of(self, setting: str, method: str) -> Runs | None:
        """The runs of a method; None if there are none."""
        return self.runs.get((setting, method))

    def label(self, setting: str, method: str) -> str:
        """A method's name in print, also where it has no runs."""
        runs = self.of(setting, method)
        return label(method) if runs is None else runs.label

    def methods(self, setting: str, also: Iterable[str] = ()) -> list[str]:
        """Methods with records in a setting, and those of ``also``, in the order of the tables."""
        return ordered([*(method for each, method in self.runs if each == setting), *also])

    @property
    def configured(self) -> Summary:
        """The summary without runs that changed values on the command line, whose methods are named method@digest."""
        return replace(self, runs={key: runs for key, runs in self.runs.items() if "@" not in runs.method})

    def test(self, setting: str, method: str, metric: Metric, noise: str | None = None) -> Statistic | None:
        """A metric on the test set; None where it was not measured."""
        runs = self.of(setting, method)
        return None if runs is None else runs.test(metric, noise)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of all runs."""
        return [record for runs in self.runs.values() for record in runs.records.values()]


def summarise(results: Results, experiment: str) -> Summary:
    """Read all records and ensembles of an experiment.

    Raises:
        ReportError: there are none, one cannot be read, or records of one method must not be averaged.
    """
    summary = summarise_sound(results, experiment)
    for name, fault in summary.faults.items():
        path = results.records / experiment / f"{name}.json"
        raise ReportError(f"{path} {fault}: delete it to have it made again")
    return summary


def summarise_sound(results: Results, experiment: str) -> Summary:
    """Summarise as :func:`summarise`, but leave out what cannot be read and name it in the summary's ``faults``."""
    records, faults = read_records(results, experiment)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["config"]["setting"], record["config"]["method"]), []).append(record)
    if not groups and not faults:
        raise ReportError(
            f"no records in {results.records / experiment}: run the experiment first, for example "
            "`contextual-dropout reproduce mnist --preset quick`, or name another folder"
        )
    runs = {key: _runs(results, experiment, *key, records, faults) for key, records in groups.items()}
    return Summary(experiment, runs, faults)


def _runs(
    results: Results, experiment: str, setting: str, method: str, records: list[dict[str, Any]], faults: dict[str, str]
) -> Runs:
    records = sorted(records, key=lambda record: int(record["config"]["seed"]))
    _check_alike(f"{experiment}/{setting}/{method}", records)
    path = results.records / experiment / setting / method / "ensemble.json"
    ensemble = None
    try:
        ensemble = read_json(path) if path.exists() else None
    except ExperimentError:
        faults[f"{setting}/{method}/ensemble"] = "is not valid JSON"
    by_seed = {record["config"]["seed"]: record for record in records}
    return Runs(setting, method, by_seed, ensemble if _of_these(ensemble, by_seed) else None)


def _of_these(ensemble: Any, records: dict[int, dict[str, Any]]) -> bool:
    """Whether the members of an ensemble are these runs, with the values that they have now."""
    if not isinstance(ensemble, dict) or "digests" not in ensemble:
        return ensemble is not None  # as older versions wrote it
    now = [records[seed].get("digest") for seed in records if seed in ensemble["seeds"]]
    return bool(now == ensemble["digests"])


def _check_alike(name: str, records: list[dict[str, Any]]) -> None:
    """Refuse to average runs that differ in more than their seeds."""
    first = records[0]
    for earlier, record in pairwise(records):
        seed = record["config"]["seed"]
        if seed == earlier["config"]["seed"]:
            raise ReportError(f"{name} has two records of seed {seed}: delete the one that does not belong there")
        different = _differences(first, record)
        if different:
            raise ReportError(
                f"{name}: seeds {first['config']['seed']} and {seed} differ in more than the seed ({different}) and "
                "cannot be averaged: run the older one again, or delete its record"
            )


def _differences(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Fields of the configuration other than the seed, and the data, as "field: one value, the other"."""
    one, other = (_with_defaults(record) for record in (first, second))
    names = sorted((one.keys() | other.keys()) - {"seed"})
    return "; ".join(
        f"{name}: {one.get(name)}, {other.get(name)}" for name in names if one.get(name) != other.get(name)
    )


def _with_defaults(record: dict[str, Any]) -> dict[str, Any]:
    """The values with defaults for fields that did not exist when the run was done."""
    return {**RunConfig("", "", "", 0).to_dict(), **record["config"], "data files": record["data"]}


def _lookup(record: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
