"""Tables, figures and a page of results: they read records and change nothing."""

from contextual_dropout.report.figures import save_all
from contextual_dropout.report.page import results_page, write_page
from contextual_dropout.report.summary import ReportError, Summary, summarise
from contextual_dropout.report.table import Table, to_markdown, to_rich
from contextual_dropout.report.tables import all_tables

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
