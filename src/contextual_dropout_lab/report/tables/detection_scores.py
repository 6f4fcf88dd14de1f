"""Tables of images of other data sets, recognised by their uncertainty: not in the paper."""

from __future__ import annotations

from contextual_dropout_lab.report.summary import Runs, Summary
from contextual_dropout_lab.report.table import Table, of_seeds

__all__ = ["detection"]

_SCORES = {"p_value": "p-value", "entropy": "entropy", "mutual_information": "mutual information"}
_MEASURES = {"auroc": "AUROC", "fpr95": "FPR95"}


def detection(summary: Summary, setting: str) -> Table:
    """AUROC and FPR95 by every score, a row for each data set and method."""
    columns = tuple(f"{measure}, {score}" for score in _SCORES.values() for measure in _MEASURES.values())
    all_runs = [summary.runs[setting, method] for method in summary.methods(setting)]
    data_sets = dict.fromkeys(
        name for runs in all_runs for record in runs.records.values() for name, value in record["ood"].items() if value
    )
    rows = [(name, runs.label, str(len(runs.seeds)), *_cells(runs, name)) for name in data_sets for runs in all_runs]
    notes = (
        "Mean ± sd over seeds, in percent; higher AUROC and lower FPR95 are better. Not in the paper. The images have "
        "the noise of the setting.",
        "A deterministic method has no p-value and no mutual information.",
    )
    title = f"Out-of-distribution detection, {summary.experiment}, {setting}"
    return Table(title, ("Data", "Method", "Seeds", *columns), tuple(rows), notes)


def _cells(runs: Runs, data: str) -> list[str]:
    seeds = len(runs.seeds)
    return [of_seeds(runs.at("ood", data, score, measure), 2, seeds) for score in _SCORES for measure in _MEASURES]
