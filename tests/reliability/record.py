"""How hard a test of sturdiness tries, and what it leaves for the page of the documentation that shows it.

Such a test runs with a small budget in CI and with its full one in ``make reliability``, which keeps the figures in
experiments/reliability.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from contextual_dropout_lab.store.files import write_json
from contextual_dropout_lab.store.provenance import provenance

__all__ = ["FULL", "budget", "keep", "record"]

FULL = os.environ.get("CONTEXTUAL_DROPOUT_RELIABILITY") == "full"
RECORDS = Path(__file__).parents[2] / "experiments" / "reliability"


def budget(small: int, full: int) -> int:
    """How many kills, inputs, steps or seconds: so many in CI, so many for the record."""
    return full if FULL else small


def record(part: str, name: str, claim: str, figures: Mapping[str, int | float | str]) -> None:
    """Keep what a test with its full budget showed; call it last, when every assertion has held.

    Args:
        part: of the page: interruption, processes, numerics, files, endurance or compatibility.
        name: of the file, unique.
        claim: one sentence that says what held.
        figures: by what they count, in words, with their unit.
    """
    if FULL:
        keep(part, name, claim, figures)


def keep(part: str, name: str, claim: str, figures: Mapping[str, int | float | str]) -> None:
    """Write a record of what was shown by the code and the versions of now."""
    where = {key: provenance()[key] for key in ("commit", "uncommitted_changes", "versions", "python", "time")}
    write_json(RECORDS / f"{name}.json", {"part": part, "claim": claim, "figures": dict(figures), "provenance": where})
