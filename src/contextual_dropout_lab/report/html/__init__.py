"""The report: one HTML page that needs no network, with tables, interactive plots and a gallery of examples."""

from contextual_dropout_lab.report.html.report_page import html_page, write_report
from contextual_dropout_lab.report.html.run_selection import Selection, select

__all__ = ["Selection", "html_page", "select", "write_report"]
