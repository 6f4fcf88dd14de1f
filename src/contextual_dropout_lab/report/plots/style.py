"""The look of plots: colours that colour-blind readers can tell apart, contextual methods in front."""

from __future__ import annotations

import zlib
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contextual_dropout_lab.report.method_names import CONTEXTUAL, LABELS, label

__all__ = ["WIDTH", "NoData", "colour", "legend", "line_style", "new_figure", "new_mosaic", "tidy"]

#: Inches: the text width of a page.
WIDTH = 6.5
# Okabe and Ito's palette, and a lighter vermilion for our method by another estimator; baselines are thin, and those of
# one family share a colour.
_COLOURS = {
    "no-dropout": "#000000",
    "mc-bernoulli": "#56B4E9",
    "mc-bernoulli-0.05": "#56B4E9",
    "mc-gaussian": "#E69F00",
    "concrete": "#009E73",
    "bayes-by-backprop": "#CC79A7",
    "gating": "#999999",
    "gating-dropout": "#999999",
    "mc-bernoulli-tuned": "#56B4E9",
    "gating-dropout-tuned": "#999999",
    "learnable-bernoulli": "#000000",
    "contextual-bernoulli-arm": "#F29C6E",
    "contextual-bernoulli-independent": "#F29C6E",
    "contextual-bernoulli-constant": "#B8860B",
    "contextual-bernoulli": "#D55E00",
    "contextual-gaussian": "#0072B2",
}
_MARKERS = dict(
    zip(LABELS, ("x", "o", "o", "s", "^", "v", "x", "+", "o", "*", "d", "v", "+", "^", "o", "s"), strict=True)
)
_DASHED = (
    "mc-bernoulli-0.05",
    "gating-dropout",
    "mc-bernoulli-tuned",
    "gating-dropout-tuned",
    "learnable-bernoulli",
    "contextual-bernoulli-arm",
    "contextual-bernoulli-independent",
    "contextual-bernoulli-constant",
)
_RC: Any = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.6,
}


class NoData(ValueError):
    """The error that there is nothing to draw, with the reason."""


def new_figure(height: float, rows: int, columns: int, **options: Any) -> tuple[Figure, list[Axes]]:
    """A plot of the page's width and its axes, row by row; it is not registered with pyplot."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def new_mosaic(height: float, layout: list[list[str]]) -> tuple[Figure, dict[str, Axes]]:
    """An empty plot as from ``new_figure``, with panels by name."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        panels: dict[str, Axes] = figure.subplot_mosaic(layout)  # type: ignore[arg-type]
    return figure, panels


def colour(method: str) -> str:
    """A method's colour; a method that is not ours has one by its name."""
    return _COLOURS.get(method) or _by_name(method, list(dict.fromkeys(_COLOURS.values())))


def line_style(method: str) -> dict[str, Any]:
    """Keywords of a method's line."""
    front = method in CONTEXTUAL
    return {
        "label": label(method),
        "color": colour(method),
        "marker": _MARKERS.get(method) or _by_name(method[::-1], list(_MARKERS.values())),
        "markersize": 4 if front else 3,
        "linewidth": 2.0 if front else 1.0,
        "linestyle": "--" if method in _DASHED else "-",
        "zorder": 4 if front else 3,
    }


def _by_name(method: str, choices: list[str]) -> str:
    return choices[zlib.crc32(method.encode()) % len(choices)]


def tidy(axes: Axes, title: str, x: str, y: str) -> None:
    """Set title and labels, and tick labels that are plain numbers."""
    axes.set_title(title, loc="left", fontweight="bold", fontsize=8.5)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.ticklabel_format(axis="y", useOffset=False)


def legend(figure: Figure, axes: Axes) -> None:
    """Draw one legend below all panels, of the lines of ``axes``, in as many columns as fit, up to four."""
    handles, labels = axes.get_legend_handles_labels()
    for columns in (4, 3, 2, 1):
        drawn = figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=7.5)
        if drawn.get_window_extent().width <= figure.bbox.width or columns == 1:
            return
        drawn.remove()
