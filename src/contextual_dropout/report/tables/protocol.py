"""What was run: what methods share, and what each has of its own."""

from __future__ import annotations

import json
from typing import Any

from contextual_dropout.report.summary import Runs, Summary
from contextual_dropout.report.table import Table

__all__ = ["protocol"]

#: Fields that methods must share for their figures to compare.
_SHARED = (
    *("epochs", "batch_size", "hidden", "split", "train_examples", "test_examples", "noise_sd"),
    *("samples", "noise_draws"),
)
_OWN = ("conversion", "p", "options", "objective", "optimizer")


def protocol(summary: Summary) -> Table:
    """The configuration behind every row of the other tables; a note where methods are not comparable."""
    rows, notes = [], []
    for setting in summary.settings:
        runs = [summary.runs[setting, method] for method in summary.methods(setting)]
        notes += _notes(setting, runs)
        rows += [
            (setting, each.label, ", ".join(map(str, each.seeds)), *(_value(each, name) for name in _OWN))
            for each in runs
        ]
    return Table("What was run", ("Setting", "Method", "Seeds", *_OWN), tuple(rows), tuple(notes))


def _notes(setting: str, runs: list[Runs]) -> list[str]:
    first = runs[0]
    shared = [name for name in _SHARED if all(_value(each, name) == _value(first, name) for each in runs)]
    notes = [f"All {setting}: {', '.join(f'{name} {_value(first, name)}' for name in shared)}."]
    if first.first["config"]["split"] == "validation":
        notes.append(f"The figures of {setting} are of held-out training images, not of the test set.")
    for name in (each for each in _SHARED if each not in shared):
        values = "; ".join(f"{each.label} {_value(each, name)}" for each in runs)
        notes.append(f"Not comparable: methods of {setting} differ in {name} ({values}).")
    return notes


def _value(runs: Runs, name: str) -> str:
    value: Any = runs.first["config"].get(name)
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items()) or "-"
    return "all" if value is None else value if isinstance(value, str) else json.dumps(value)
