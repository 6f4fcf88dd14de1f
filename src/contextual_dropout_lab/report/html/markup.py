"""Parts of the page as HTML; all text is escaped here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from contextual_dropout_lab.report.html.gallery import KINDS
from contextual_dropout_lab.report.html.plot_values import InteractivePlot, shade
from contextual_dropout_lab.report.plots.style import line_style
from contextual_dropout_lab.report.table import Table

__all__ = ["facts_list", "gallery_block", "inline_json", "method_boxes", "notes_block", "plot_block", "table_block"]

#: The folders of an absolute path.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/]+/)+")
#: Cells of more characters need room.
LONG = 30
_ANSWERS = {"": "all", "right": "right", "wrong": "wrong"}
_P_VALUES = {
    "": "all",
    "0,0.01": "below 0.01",
    "0.01,0.05": "0.01 to 0.05",
    "0.05,0.1": "0.05 to 0.1",
    "0.1,0.5": "0.1 to 0.5",
    "0.5,2": "0.5 and above",
}
_SORTS = {
    "place-up": "most striking",
    "p-down": "highest p-value",
    "p-up": "lowest p-value",
    "confidence-down": "most confident",
    "confidence-up": "least confident",
    "truth-up": "true class",
    "method-up": "method",
    "right-up": "wrong first",
    "right-down": "right first",
}


def table_block(table: Table, shown: bool) -> str:
    """A table that opens and shuts, and scrolls by itself where it is wider than the page."""
    notes = (
        f"<ul class='notes'>{''.join(f'<li>{escape(note)}</li>' for note in table.notes)}</ul>" if table.notes else ""
    )
    return (
        f"<details class='table'{' open' if shown else ''}><summary>{escape(table.title)}</summary>"
        f"{_rows(table) if table.rows else f'<p>{escape(table.empty)}</p>'}{notes}</details>"
    )


def _rows(table: Table) -> str:
    numeric = [bool(index) and table.numeric(index) for index in range(len(table.columns))]
    wide = [max(len(row[index]) for row in table.rows) > LONG for index in range(len(table.columns))]
    looks = [
        " class='number'" if number else " class='text'" if text else ""
        for number, text in zip(numeric, wide, strict=True)
    ]
    heads = "".join(
        f"<th scope='col'{look}>{escape(name)}</th>" for name, look in zip(table.columns, looks, strict=True)
    )
    lines = []
    for first, *cells in table.rows:
        others = "".join(f"<td{look}>{escape(cell)}</td>" for cell, look in zip(cells, looks[1:], strict=True))
        lines.append(f"<tr><th scope='row'{looks[0]}>{escape(first)}</th>{others}</tr>")
    # With a place in the order of the keyboard, it can be scrolled without a mouse.
    return (
        f"<div class='scroll' role='region' tabindex='0' aria-label='{escape(table.title)}'><table><thead><tr>{heads}"
        f"</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def facts_list(facts: Mapping[str, str]) -> str:
    """The list of facts about the origin of the results."""
    lines = (f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    return f"<dl class='facts'>{''.join(lines)}</dl>"


def notes_block(notes: Iterable[str]) -> str:
    """Lines on what is left out; the page may be shared, so folders of this machine are not named."""
    return "".join(f"<p class='note'>{escape(_FOLDERS.sub('…/', note))}</p>" for note in notes)


def method_boxes(methods: Mapping[str, str]) -> str:
    """A box to tick for every method, with a sample of its line: the legend of all plots of a setting.

    Args:
        methods: their names in print.
    """
    boxes = []
    for method, name in methods.items():
        dash = " stroke-dasharray='5 3'" if line_style(method)["linestyle"] == "--" else ""
        sample = (
            f"<svg width='26' height='8' aria-hidden='true'><line x1='1' y1='4' x2='25' y2='4' "
            f"style='stroke:{shade(method)}' stroke-width='3'{dash}/></svg>"
        )
        boxes.append(f"<label><input type='checkbox' value='{escape(method)}' checked>{sample}{escape(name)}</label>")
    return f"<fieldset class='methods'><legend>Methods</legend>{''.join(boxes)}</fieldset>" if boxes else ""


def plot_block(name: str, figure: InteractivePlot) -> str:
    """A place that the page draws a plot into when it is in view; without a choice it names what is shown."""
    title = escape(figure.title)
    choices = {str(index): text for index, text in enumerate(figure.plots)}
    only = f"<span>{escape(next(iter(figure.plots)))}</span>"
    choice = _select("choice", figure.choice, choices) if len(choices) > 1 else only
    return (
        f"<figure id='{name}' class='plot'><div class='head'><h4>{title}</h4>{choice}</div>"
        f"<div class='canvas' role='group' aria-label='{title}'></div>"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def gallery_block(name: str, values: Mapping[str, Any], caption: str) -> str:
    """Filters, and a place for the cards: at first of our method, as another may have all the most striking ones."""
    methods = {"": "all", **{str(index): each["label"] for index, each in enumerate(values["methods"])}}
    present = sorted({card["truth"] for card in values["cards"]} - {-1})
    classes = {"": "all", **{str(index): values["classes"][index] for index in present}}
    selects = (
        _select("kind", "Examples", {**KINDS, "": "all"})
        + _select("method", "Method", methods, str(values["ours"]))
        + _select("truth", "True class", classes)
        + _select("answer", "Answer", _ANSWERS)
        + _select("p", "p-value", _P_VALUES)
        + _select("sort", "Sort by", _SORTS)
    )
    return (
        f"<section id='{name}' class='gallery' aria-label='Gallery'><h4>Gallery</h4><p>{escape(caption)}</p>"
        f"<form class='filters' aria-label='Filter and sort the gallery'>{selects}</form>"
        "<p class='count' role='status'></p><div class='cards'></div>"
        "<button type='button' class='more'>Show more</button></section>"
    )


def _select(name: str, title: str, choices: Mapping[str, str], chosen: str | None = None) -> str:
    """A menu of choices; the first is chosen at first, or ``chosen`` if that is among them."""
    options = "".join(
        f"<option value='{escape(value)}'{' selected' if value == chosen else ''}>{escape(text)}</option>"
        for value, text in choices.items()
    )
    return f"<label>{escape(title)} <select name='{name}' autocomplete='off'>{options}</select></label>"


def inline_json(value: Any) -> str:
    r"""JSON that may stand between script tags: nothing in it can end them.

    Example:
        >>> print(inline_json({"name": "</script>"}))
        {"name":"\u003c/script>"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
