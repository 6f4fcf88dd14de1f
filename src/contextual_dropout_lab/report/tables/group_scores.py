"""Accuracy by groups of test examples: the answer types of visual question answering."""

from __future__ import annotations

from contextual_dropout_lab.report.metric_names import ACCURACY, Metric
from contextual_dropout_lab.report.summary import Runs, Summary
from contextual_dropout_lab.report.table import Table, of_seeds

__all__ = ["groups", "has_groups"]

_WHERE = "accuracy_by_group"


def has_groups(summary: Summary, setting: str) -> bool:
    """Whether accuracies were measured by group."""
    return any(_names(summary.runs[setting, method]) for method in summary.methods(setting))


def groups(summary: Summary, setting: str) -> Table:
    """The table of accuracies at the setting's own noise level: of all test examples, and of every group."""
    every = [summary.runs[setting, method] for method in summary.methods(setting)]
    names = list(dict.fromkeys(name for runs in every for name in _names(runs)))
    metrics = (ACCURACY, *(Metric(name, name, (_WHERE, name), ACCURACY.decimals) for name in names))
    rows = []
    for runs in every:
        seeds = len(runs.seeds)
        rows.append((runs.label, str(seeds), *(of_seeds(runs.test(each), each.decimals, seeds) for each in metrics)))
    columns = ("Method", "Seeds", "All", *names)
    notes = ("Accuracy in percent, mean ± sd over seeds.",)
    return Table(f"Accuracy by answer type, {summary.experiment}, {setting}", columns, tuple(rows), notes)


def _names(runs: Runs) -> list[str]:
    return list(runs.first["test"][runs.own_noise].get(_WHERE, {}))
