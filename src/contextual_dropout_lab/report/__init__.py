"""Tables, plots and a page of results: they read records and change nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contextual_dropout_lab.report.summary import ReportError, Summary, summarise
from contextual_dropout_lab.report.table import Table, to_markdown, to_rich
from contextual_dropout_lab.report.tables import all_tables

if TYPE_CHECKING:
    from contextual_dropout_lab.report.markdown_page import results_page, write_page
    from contextual_dropout_lab.report.plots import save_all

__all__ = [
    "ReportError",
    "Summary",
    "Table",
    "all_tables",
    "results_page",
    "save_all",
    "summarise",
    "to_markdown",
    "to_rich",
    "write_page",
]

#: The names that draw, and their modules.
_DRAWS = {
    "results_page": "contextual_dropout_lab.report.markdown_page",
    "save_all": "contextual_dropout_lab.report.plots",
    "write_page": "contextual_dropout_lab.report.markdown_page",
}


def __getattr__(name: str) -> Any:
    """Import the names that draw at their first use: tables do not need matplotlib."""
    if name in _DRAWS:
        return getattr(import_module(_DRAWS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
