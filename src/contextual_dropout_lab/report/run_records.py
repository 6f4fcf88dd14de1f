"""Records of runs as they are on disk: the sound ones, and what is wrong with the others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.store.files import read_json
from contextual_dropout_lab.store.results import Results

__all__ = ["fault_of", "read_records"]

#: The keys that every record has.
PARTS = ("config", "provenance", "data", "parameters", "cost", "history", "test", "ood")


def read_records(results: Results, experiment: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Every sound record of an experiment, by setting, method and seed; and what is wrong with the others, by name.

    The name is setting/method/seed-n.
    """
    sound, faults = [], {}
    root = results.records / experiment
    for path in sorted(root.glob("*/*/seed-*.json")):
        record, fault = _read(path)
        if fault is None:
            sound.append(record)
        else:
            faults[path.relative_to(root).with_suffix("").as_posix()] = fault
    return sound, faults


def _read(path: Path) -> tuple[Any, str | None]:
    try:
        record = read_json(path)
    except ExperimentError:
        return None, "is not valid JSON"
    return record, fault_of(record)


def fault_of(record: Any) -> str | None:
    """The reason for which a report cannot use the record, as the end of a sentence about it; None if it is sound.

    Example:
        >>> fault_of({"config": {}})
        'has no provenance, data, parameters, cost, history, test, ood'
    """
    if not isinstance(record, dict):
        return "is not a record of a run"
    if missing := [name for name in PARTS if name not in record]:
        return f"has no {', '.join(missing)}"
    try:
        RunConfig.from_dict(record["config"])
    except (ExperimentError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return "has no configuration of a run of this version"
    test = record["test"]
    if not isinstance(test, dict) or not test or not all(isinstance(each, dict) for each in test.values()):
        return "has no results of a test"
    try:
        place = _no_number(record)
    except RecursionError:
        return "has lists in lists, or mappings in mappings, without end"
    return None if place is None else f"has a number that is not finite at {place}"


def _no_number(value: Any, place: str = "") -> str | None:
    """The first place with a value that is not a number or is too large to draw, if there is one."""
    if isinstance(value, int | float):
        return None if abs(value) <= sys.float_info.max else place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = (_no_number(each, f"{place}/{key}".lstrip("/")) for key, each in inside)
    return next((each for each in found if each is not None), None)
