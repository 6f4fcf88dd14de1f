"""The report as one file: styles, scripts and images are in it, so that it opens anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from contextual_dropout_lab.report.facts import facts
from contextual_dropout_lab.report.html.markup import (
    facts_list,
    gallery_block,
    inline_json,
    method_boxes,
    notes_block,
    plot_block,
    table_block,
)
from contextual_dropout_lab.report.html.prediction_plots import CERTAIN
from contextual_dropout_lab.report.html.run_selection import Selection
from contextual_dropout_lab.report.html.sections import Section, read_section
from contextual_dropout_lab.report.summary import ReportError
from contextual_dropout_lab.report.table import MISSING, Table
from contextual_dropout_lab.report.tables import all_tables
from contextual_dropout_lab.store.files import replace_file

__all__ = ["html_page", "write_report"]

_FILES = resources.files("contextual_dropout_lab.report.html")


def write_report(selections: Sequence[Selection], folder: Path, data: Path | None = None) -> Path:
    """Write ``index.html``, all of it or nothing.

    Args:
        selections: the runs; see :func:`contextual_dropout_lab.report.html.select`.
        folder: for the page.
        data: where the data sets are, if not in the usual places.

    Returns:
        The page's path.
    """
    path = folder / "index.html"
    text = html_page(selections, data)
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def html_page(selections: Sequence[Selection], data: Path | None = None) -> str:
    """The page of all runs, an experiment after the other.

    Raises:
        ReportError: Plotly is not installed.
    """
    plotly = _plotly()
    parts: list[str] = []
    values: dict[str, dict[str, Any]] = {"figures": {}, "galleries": {}}
    links: list[tuple[str, str]] = []
    for number, selection in enumerate(selections):
        sections = [read_section(selection, setting, data) for setting in selection.summary.settings]
        parts += _experiment(selection, sections, f"e{number}", values)
        links += _links(selection, sections, f"e{number}")
    names = ", ".join(dict.fromkeys(selection.summary.experiment for selection in selections))
    return Template(_read("page.html")).substitute(
        title=escape(f"{names}: contextual dropout"),
        names=escape(names),
        style=_read("style.css"),
        threshold=f"{CERTAIN:g}",
        links="".join(f"<a href='#{anchor}'>{escape(text)}</a>" for anchor, text in links),
        content="".join(parts),
        values=inline_json(values),
        plotly=plotly,
        script=_read("report.js"),
    )


def _links(selection: Selection, sections: Iterable[Section], name: str) -> list[tuple[str, str]]:
    experiment = selection.summary.experiment
    links = [(f"{name}-results", f"{experiment}: results")]
    for place, section in enumerate(sections):
        links.append((f"{name}-s{place}", f"{section.setting}: plots"))
        if section.gallery is not None:
            links.append((f"{name}-s{place}-gallery", f"{section.setting}: gallery"))
    return [*links, (f"{name}-tables", f"{experiment}: tables")]


def _experiment(
    selection: Selection, sections: Iterable[Section], name: str, values: dict[str, dict[str, Any]]
) -> Iterator[str]:
    """Its facts, first table, settings and other tables; values that scripts need are added to ``values``."""
    first, *others = (table for table in all_tables(selection.summary).values() if _measured(table))
    yield f"<section class='experiment' id='{name}'><h2>{escape(selection.summary.experiment)}</h2>"
    yield facts_list(facts(selection.summary))
    yield notes_block(f"{each} has no record yet, and is left out." for each in selection.unfinished)
    yield notes_block(f"{name} is left out: its file {fault}." for name, fault in selection.summary.faults.items())
    yield f"<section id='{name}-results'><h3>Results</h3>{table_block(first, shown=True)}</section>"
    for place, section in enumerate(sections):
        yield from _setting(section, f"{name}-s{place}", values)
    yield f"<section id='{name}-tables'><h3>More tables</h3>"
    yield from (table_block(table, shown=False) for table in others)
    yield "</section></section>"


def _measured(table: Table) -> bool:
    """Whether anything in it is ours: in the columns of that name, if it has any, or beside the names of its rows."""
    if not table.rows:
        return table.empty != Table.empty  # finding nothing is a result; running nothing is not
    ours = [place for place, head in enumerate(table.columns) if head.lower() == "ours"]
    return any(row[place] != MISSING for row in table.rows for place in ours or range(1, len(table.columns)))


def _setting(section: Section, name: str, values: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield f"<section class='setting' id='{name}'><h3>Setting: {escape(section.setting)}</h3>"
    yield notes_block(section.notes)
    if section.plots:
        yield f"<div class='figures'>{method_boxes(section.with_lines)}<div class='plots'>"
        for place, figure in enumerate(section.plots):
            yield plot_block(f"{name}-f{place}", figure)
            values["figures"][f"{name}-f{place}"] = list(figure.plots.values())
        yield "</div></div>"
    if section.gallery is not None:
        yield gallery_block(f"{name}-gallery", section.gallery, section.caption)
        values["galleries"][f"{name}-gallery"] = section.gallery
    yield "</section>"


def _plotly() -> str:
    """The library that draws the plots, as a script."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError as error:
        raise ReportError(
            "plots are drawn by Plotly, which is not installed: pip install 'contextual-dropout[report]'"
        ) from error
    return str(get_plotlyjs())


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")
