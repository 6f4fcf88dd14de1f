"""The figures of the page on reliability, from the records that ``make reliability`` keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.pages import Page

RECORDS = Path(__file__).parents[2] / "experiments" / "reliability"
MARK = re.compile(r"^<!-- figures: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put a table in the place of every mark."""
    return MARK.sub(lambda mark: "\n".join(table(mark.group(1))), markdown)


def table(part: str) -> Iterator[str]:
    """What held, how often it was tried, and with which code."""
    yield from ("| What held | Figures | Run with |", "| --- | --- | --- |")
    for path in sorted(RECORDS.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["part"] == part:
            figures = "<br>".join(f"{name}: {_number(value)}" for name, value in record["figures"].items())
            origin = record["provenance"]
            versions = f"torch {origin['versions']['torch']}, Python {origin['python']}"
            yield f"| {record['claim']} | {figures} | {origin['time'][:10]}, `{origin['commit'][:7]}`<br>{versions} |"


def _number(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
