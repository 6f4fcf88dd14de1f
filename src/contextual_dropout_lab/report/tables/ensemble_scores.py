"""Ensembles of independently trained networks (the paper's ensemble plot, as a table)."""

from __future__ import annotations

from typing import Any

from contextual_dropout_lab.report.summary import Runs, Summary
from contextual_dropout_lab.report.table import MISSING, Table, number

__all__ = ["ensembles"]

_THRESHOLDS = ("0.01", "0.05", "0.1")


def ensembles(summary: Summary) -> Table:
    """The table of ensembles of one to n members, a row for each number of members and method."""
    measured = [
        runs
        for setting in summary.settings
        for method in summary.methods(setting)
        if (runs := summary.runs[setting, method]).ensemble
    ]
    rows = [_row(runs, members, values) for runs in measured for members, values in _members(runs)]
    columns = (
        *("Setting", "Method", "Members", "Subsets", "Accuracy"),
        *(f"PAvPU({each[1:]})" for each in _THRESHOLDS),
        *("Log-likelihood", "Calibration error"),
    )
    return Table("Ensembles", columns, tuple(rows), _notes(measured))


def _members(runs: Runs) -> list[tuple[int, dict[str, Any]]]:
    found = (runs.ensemble or {}).get("members", {})
    return sorted((int(count), values) for count, values in found.items())


def _row(runs: Runs, members: int, values: dict[str, Any]) -> tuple[str, ...]:
    accuracy, sd = number(values["accuracy"], 2), values.get("accuracy_sd")
    pavpu = values.get("pavpu") or {}
    return (
        *(runs.setting, runs.label, str(members), str(values["subsets"])),
        accuracy if sd is None else f"{accuracy} ± {number(sd, 2)}",
        *(number(pavpu[each], 2) if each in pavpu else MISSING for each in _THRESHOLDS),
        *(number(values["log_likelihood"], 4), number(values.get("calibration_error"), 2)),
    )


def _notes(measured: list[Runs]) -> tuple[str, ...]:
    facts = {
        f"{runs.setting}: test {runs.ensemble['noise']}, {runs.ensemble['total_samples']} samples shared between the "
        f"members, of {len(runs.ensemble['seeds'])} trained networks."
        for runs in measured
        if runs.ensemble
    }
    subsets = "Mean over subsets of the trained networks. Subsets overlap, so the sd between them is no error bar."
    return (subsets, *sorted(facts)) if facts else (subsets,)
