"""Brier score, calibration error, and the risk when uncertain examples are refused: not in the paper."""

from __future__ import annotations

from contextual_dropout_lab.report.metric_names import AURC_ENTROPY, AURC_P_VALUE, BRIER, CALIBRATION_ERROR
from contextual_dropout_lab.report.summary import Summary
from contextual_dropout_lab.report.table import Table, of_seeds

__all__ = ["calibration"]


def calibration(summary: Summary, setting: str) -> Table:
    """The table at the setting's own noise level; lower is better in all columns."""
    metrics = (BRIER, CALIBRATION_ERROR, AURC_ENTROPY, AURC_P_VALUE)
    rows = []
    for method in summary.methods(setting):
        runs = summary.runs[setting, method]
        seeds = len(runs.seeds)
        rows.append((runs.label, str(seeds), *(of_seeds(runs.test(each), each.decimals, seeds) for each in metrics)))
    notes = (
        "Mean ± sd over seeds; lower is better. Not in the paper.",
        "Calibration error: expected, 15 bins, in percent. AURC: area under the risk-coverage curve when the most "
        "uncertain examples are refused first, by either score.",
    )
    columns = ("Method", "Seeds", *(each.label for each in metrics))
    return Table(f"Calibration, {summary.experiment}, {setting}", columns, tuple(rows), notes)
