"""Plotly plots as plain values; colours are variables of the page's style, for light and dark alike."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from contextual_dropout_lab.report.method_names import CONTEXTUAL
from contextual_dropout_lab.report.plots.style import colour, line_style

__all__ = [
    "LEGEND",
    "RIGHT",
    "WRONG",
    "InteractivePlot",
    "Plot",
    "axis",
    "line",
    "ours_first",
    "plain",
    "plot",
    "rounded",
    "shade",
]

Plot = dict[str, Any]
#: Colours of right and wrong answers, which no method has.
RIGHT, WRONG = "var(--right)", "var(--wrong)"
#: The layout of a plot with a legend of its own, above it on the left: the buttons of Plotly are on the right.
LEGEND: Plot = {"showlegend": True, "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}}
_FONT = {"color": "var(--ink)", "size": 12, "family": "system-ui, sans-serif"}


@dataclass(frozen=True)
class InteractivePlot:
    """An interactive plot of the page.

    Attributes:
        title: plain text, as is all text here.
        caption: how to read it.
        plots: by the choice that shows them, the first at first.
        choice: what is chosen; with one plot there is no choice.
    """

    title: str
    caption: str
    plots: dict[str, Plot]
    choice: str = ""


def plot(traces: Sequence[Plot], x: Plot, y: Plot, **layout: Any) -> Plot:
    """Traces and the layout that all plots share."""
    shared = {
        "xaxis": x,
        "yaxis": y,
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 70, "r": 14, "t": 30, "b": 48},
        "font": _FONT,
        "hoverlabel": {"bgcolor": "var(--raised)", "bordercolor": "var(--line)", "font": _FONT},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--muted)", "activecolor": "var(--ink)"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    return {"data": list(traces), "layout": {**shared, **layout}}


def axis(title: str, **options: Any) -> Plot:
    """An axis with a title."""
    look = {"gridcolor": "var(--line)", "zerolinecolor": "var(--line)", "linecolor": "var(--line)"}
    return {"title": {"text": plain(title), "standoff": 8}, **look, **options}


class HasMethod(Protocol):
    """Any object that belongs to a method."""

    @property
    def method(self) -> str:
        """The name of the method."""

    @property
    def label(self) -> str:
        """The name of the method in print."""


def line(of: HasMethod, x: Sequence[float], y: Sequence[float | None], hover: str, **options: Any) -> Plot:
    """A method's line; the page can hide it by the method that it has in ``meta``."""
    style = line_style(of.method)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(of.label),
        "meta": of.method,
        "x": list(x),
        "y": list(y),
        "line": {
            "color": shade(of.method),
            "width": 1.4 * style["linewidth"],
            "dash": "dash" if style["linestyle"] == "--" else "solid",
        },
        "hovertemplate": f"<b>%{{fullData.name}}</b><br>{hover}<extra></extra>",
        **options,
    }


T = TypeVar("T", bound=HasMethod)


def ours_first(found: Iterable[T]) -> list[T]:
    """Contextual methods, then the others: the order where one of them is chosen."""
    return sorted(found, key=lambda each: each.method not in CONTEXTUAL)


def shade(method: str) -> str:
    """A method's colour; black would be lost in the dark."""
    found = colour(method)
    return "var(--ink)" if found == "#000000" else found


def plain(text: str) -> str:
    """Text that Plotly, which knows some tags, shows as it is.

    Example:
        >>> plain("a <b>")
        'a &lt;b&gt;'
    """
    return html.escape(text, quote=False)


def rounded(values: Sequence[float], digits: int = 4) -> list[float]:
    """Numbers that are short in print.

    Example:
        >>> rounded([1 / 3, 2e-7 / 3])
        [0.3333, 6.667e-08]
    """
    return [float(f"{value:.{digits}g}") for value in values]
