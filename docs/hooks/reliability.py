"""The figures of the page on reliability, from the records that ``make reliability`` keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.pages import Page

RECORDS = Path(__file__).parents[2] / "experiments" / "reliability"
#: The records of a full trial by part of the page, as the tests keep them; those of other versions come as they come.
EXPECTED: dict[str, tuple[str, ...]] = {
    "interruption": (
        *("kills-at-random-moments", "kills-before-file-operations", "kills-of-a-sweep"),
        *("full-disk", "two-runners"),
    ),
    "processes": (
        *("gradients", "in-step", "no-pass-skipped", "metrics"),
        *("two-starters", "killed-process", "preempted-job"),
    ),
    "numerics": (
        *("numerics-training", "numerics-prediction", "numerics-kl-bernoulli", "numerics-kl-gaussian"),
        *("numerics-p-values", "numerics-masks-bernoulli", "numerics-masks-gaussian", "numerics-masks-mirrored"),
        *("numerics-repeated", "numerics-threads"),
    ),
    "networks": ("networks", "mutations"),
    "files": ("files-fuzzed", "files-that-lie", "files-that-harm", "files-that-escape"),
    "endurance": (
        *("training-sequential-arm", "training-sampled-arm", "training-reparameterized", "training-straight-through"),
        *("predictions-chain", "predictions-residual", "conversions", "threads", "visitors"),
    ),
    "compatibility": (),
}
MARK = re.compile(r"^<!-- figures: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put a table in the place of every mark."""
    return MARK.sub(lambda mark: "\n".join(table(mark.group(1))), markdown)


def table(part: str) -> Iterator[str]:
    """What held, how often it was tried, and with which code; and what did not hold, or was not run."""
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))}
    records = {name: record for name, record in records.items() if record["part"] == part}
    if not records:
        yield "Not tried in full yet."
        return
    yield from ("| What held | Figures | Run with |", "| --- | --- | --- |")
    for record in records.values():
        figures = "<br>".join(f"{name}: {_number(value)}" for name, value in record["figures"].items())
        yield f"| {record['claim']} | {figures} | {_origin(record['provenance'])} |"
    for name in sorted(set(EXPECTED[part]) - set(records)):
        yield f"| *{name.replace('-', ' ')}* | did not hold, or was not run | |"


def _origin(found: dict[str, Any]) -> str:
    """When, with which code and which versions."""
    commit = f"`{found['commit'][:7]}`" if found["commit"] else "unknown commit"
    changed = " with uncommitted changes" if found["uncommitted_changes"] else ""
    return f"{found['time'][:10]}, {commit}{changed}<br>torch {found['versions']['torch']}, Python {found['python']}"


def _number(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
