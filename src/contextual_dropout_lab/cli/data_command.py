"""``contextual-dropout data``: where the data sets are."""

from __future__ import annotations

import itertools
from pathlib import Path

from rich.console import Console
from rich.progress import DownloadColumn, Progress, TaskID
from rich.table import Table

from contextual_dropout_lab.data import NAMES, DataError, load
from contextual_dropout_lab.data.loading import IMAGE_FILES
from contextual_dropout_lab.data.locations import find, locate_folder

__all__ = ["dataset_table", "get_datasets"]

SPLITS = ("train", "test")


def get_datasets(names: list[str], directory: Path | None, console: Console) -> int:
    """Load every split of the data sets, fetching what is not there; returns how many could not be loaded."""
    failed = 0
    with Progress(*Progress.get_default_columns(), DownloadColumn(), console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=done)

        for name, split in itertools.product(names, SPLITS):
            try:
                load(name, split, directory, show)
            except DataError as error:  # noqa: PERF203, the other sets can still be loaded
                failed += 1
                console.print(f"[red]{name}, {split}:[/red] {error}", highlight=False)
    return failed


def dataset_table(directory: Path | None) -> Table:
    """Show what is on this machine, without fetching anything."""
    table = Table(title="data sets on this machine")
    for column in ("name", *SPLITS):
        table.add_column(column)
    for name in NAMES:
        found = [_where(name, split, directory) for split in SPLITS]
        table.add_row(name, *(str(where) if where else "—" for where in found))
    return table


def _where(name: str, split: str, directory: Path | None) -> str | Path | None:
    if name == "digits":
        return "with scikit-learn"
    if name not in IMAGE_FILES:
        return find(name, split, directory)
    try:
        return locate_folder(name, directory)
    except DataError:
        return None
