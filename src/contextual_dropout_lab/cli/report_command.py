"""``contextual-dropout report``: one HTML page of finished runs."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from contextual_dropout_lab.report.html import select, write_report
from contextual_dropout_lab.store.results import Results

__all__ = ["report_runs"]


def report_runs(runs: list[str], output: Path, results: Results, data: Path | None, console: Console) -> None:
    """Write the page and say where it is.

    Args:
        runs: names of experiments, or folders.
        output: for the page.
        results: where records and predictions are looked for by name.
        data: where the data sets are, if not in the usual places.
        console: for the page's path, and what is left out of it.
    """
    selections = select(runs, results)
    for name in (name for selection in selections for name in selection.unfinished):
        console.print(f"left out: {name} has no record yet", highlight=False, soft_wrap=True)
    path = write_report(selections, output, data)
    console.print(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB)", highlight=False, soft_wrap=True)
