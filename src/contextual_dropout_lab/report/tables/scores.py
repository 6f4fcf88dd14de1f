"""Accuracy, PAvPU and log-likelihood of every method in a setting, whatever the experiment."""

from __future__ import annotations

from contextual_dropout_lab.report.metric_names import ACCURACY, LOG_LIKELIHOOD, PAVPU_01, PAVPU_05, PAVPU_10
from contextual_dropout_lab.report.summary import Summary
from contextual_dropout_lab.report.table import Table, of_seeds

__all__ = ["score_table"]


def score_table(summary: Summary, setting: str) -> Table:
    """The table of scores at the setting's own noise level."""
    metrics = (ACCURACY, PAVPU_01, PAVPU_05, PAVPU_10, LOG_LIKELIHOOD)
    rows = []
    for method in summary.methods(setting):
        runs = summary.runs[setting, method]
        seeds = len(runs.seeds)
        rows.append((runs.label, str(seeds), *(of_seeds(runs.test(each), each.decimals, seeds) for each in metrics)))
    notes = ("Mean ± sd over seeds. A deterministic method has no PAvPU.",)
    columns = ("Method", "Seeds", *(each.label for each in metrics))
    return Table(f"Accuracy, PAvPU and log-likelihood, {summary.experiment}, {setting}", columns, tuple(rows), notes)
