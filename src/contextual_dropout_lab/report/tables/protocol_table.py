"""Table of what was run: what methods share, and what each has of its own."""

from __future__ import annotations

import json
from typing import Any

from contextual_dropout_lab.report.summary import Runs, Summary
from contextual_dropout_lab.report.table import Table

__all__ = ["protocol"]

#: Fields that methods must share for their scores to compare.
_SHARED = (
    *("network", "network_options", "hidden", "start_from", "augmentation", "epochs", "batch_size", "split"),
    *("train_examples", "test_examples", "noise_sd", "samples", "noise_draws"),
)
#: Fields that older records lack. They are left unmentioned, except for the network.
_ADDED: dict[str, Any] = {"network": "mlp", "network_options": {}, "start_from": None, "augmentation": "none"}
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
    told = [name for name in _SHARED if any(_tells(each, name) for each in runs)]
    shared = [name for name in told if all(_value(each, name) == _value(first, name) for each in runs)]
    notes = [f"All {setting}: {', '.join(f'{name} {_value(first, name)}' for name in shared)}."]
    if first.first["config"]["split"] == "validation":
        notes.append(f"The figures of {setting} are of held-out training images, not of the test set.")
    for name in (each for each in told if each not in shared):
        values = "; ".join(f"{each.label} {_value(each, name)}" for each in runs)
        notes.append(f"Not comparable: methods of {setting} differ in {name} ({values}).")
    return notes + [f"Left out of the {part} data of {setting}: {text}." for part, text in _skipped(first).items()]


def _tells(runs: Runs, name: str) -> bool:
    """Whether a field is one of the runs' network, and has another value than that nothing was done."""
    config = _ADDED | runs.first["config"]
    if name == "hidden":
        return bool(config["network"] == "mlp")
    return name == "network" or name not in _ADDED or config[name] != _ADDED[name]


def _skipped(runs: Runs) -> dict[str, str]:
    """Bad records of the files, by part."""
    parts = runs.first.get("skipped", {}).items()
    return {part: ", ".join(f"{count:,} ({reason})" for reason, count in counts.items()) for part, counts in parts}


def _value(runs: Runs, name: str) -> str:
    value = (_ADDED | runs.first["config"]).get(name)
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items()) or "-"
    if name == "start_from":
        return str(value or "nothing")
    return "all" if value is None else value if isinstance(value, str) else json.dumps(value)
