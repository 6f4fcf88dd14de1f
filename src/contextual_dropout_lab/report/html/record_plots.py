"""Plots of records alone: dropout probabilities and ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextual_dropout_lab.report.html.plot_values import (
    LEGEND,
    RIGHT,
    WRONG,
    InteractivePlot,
    Plot,
    axis,
    line,
    ours_first,
    plain,
    plot,
    rounded,
    shade,
)
from contextual_dropout_lab.report.plots.drop_probability_plot import site_quantiles
from contextual_dropout_lab.report.plots.ensemble_sizes import PANELS
from contextual_dropout_lab.report.summary import Runs

__all__ = ["all_record_plots"]

_QUANTILES = (
    "Boxes are the 25, 50 and 75% quantiles over test examples of a site's mean drop probability, whiskers 5 and 95%."
)
#: More places than this, or names with more characters, are numbered.
FEW, SHORT = 12, 10
_GROUPS = {"all": "var(--muted)", "right": RIGHT, "wrong": WRONG}


def all_record_plots(runs: Sequence[Runs]) -> list[InteractivePlot]:
    """The plots for which the runs of a setting have values."""
    sites = ours_first(each for each in runs if "drop_probabilities" in each.first)
    members = [each for each in runs if len((each.ensemble or {}).get("members", ())) > 1]
    found = [*([_by_layer(sites), _by_class(sites)] if sites else []), *([_ensembles(members)] if members else [])]
    return [figure for figure in found if figure.plots]


def _by_layer(runs: Sequence[Runs]) -> InteractivePlot:
    plots = {}
    for each in runs:
        sites = each.site_labels
        groups = {name: {place: site_quantiles(each, site, name) for site, place in sites.items()} for name in _GROUPS}
        plots[each.label] = _boxes(groups, _GROUPS, "layer, in the order of calls", boxmode="group", **LEGEND)
    return InteractivePlot("Dropout probabilities by layer", _QUANTILES, plots, "Method")


def _by_class(runs: Sequence[Runs]) -> InteractivePlot:
    plots = {}
    for each in runs:
        for site, place in each.site_labels.items():
            groups = [name for name in each.first["drop_probabilities"]["sites"][site] if name.startswith("class ")]
            values = {name.removeprefix("class "): site_quantiles(each, site, name) for name in groups}
            if values:
                plots[f"{place}: {each.label}"] = _boxes({"": values}, {"": shade(each.method)}, "class")
    return InteractivePlot("Dropout probabilities by class", _QUANTILES, plots, "Shown")


def _boxes(groups: dict[str, dict[str, list[float]]], colours: dict[str, str], title: str, **layout: Any) -> Plot:
    """Boxes of quantiles by group and place, numbered where the names of the places are long."""
    places = list(next(iter(groups.values())))
    short = len(places) <= FEW and all(len(place) <= SHORT for place in places)
    ticks = {place: plain(place) if short else str(number) for number, place in enumerate(places, 1)}
    boxes = [
        _box(name, colours[name], {ticks[place]: each for place, each in found.items() if each})
        for name, found in groups.items()
    ]
    x = axis(title, type="category", gridcolor="rgba(0,0,0,0)", automargin=True)
    return plot([*boxes, _words(groups, ticks)], x, _probability(), hoverdistance=100, **layout)


def _box(name: str, colour: str, quantiles: dict[str, list[float]]) -> Plot:
    columns = [rounded(column) for column in zip(*quantiles.values(), strict=True)] or [[]] * 5
    return {
        "type": "box",
        "name": name,
        "x": list(quantiles),
        **dict(zip(("lowerfence", "q1", "median", "q3", "upperfence"), columns, strict=True)),
        "line": {"color": colour, "width": 1.5},
        "whiskerwidth": 0.4,
        "hoverinfo": "skip",
    }


def _words(groups: dict[str, dict[str, list[float]]], ticks: dict[str, str]) -> Plot:
    """The text for a reader who points at a place: its whole name and the quantiles of all groups."""
    x, y, words = [], [], []
    for place, tick in ticks.items():
        lines = {name: found[place] for name, found in groups.items() if found.get(place)}
        if lines:
            x.append(tick)
            y.append(rounded([max(each[2] for each in lines.values())])[0])
            said = (f"{name} {each[2]:.3g} ({each[0]:.3g} to {each[4]:.3g})".strip() for name, each in lines.items())
            words.append("<br>".join([f"<b>{plain(place)}</b>", *said]))
    look = {"mode": "markers", "marker": {"opacity": 0, "color": "var(--muted)"}, "showlegend": False}
    return {"type": "scatter", **look, "x": x, "y": y, "text": words, "hovertemplate": "%{text}<extra></extra>"}


def _probability() -> Plot:
    return axis("drop probability", rangemode="tozero", exponentformat="power")


def _ensembles(runs: Sequence[Runs]) -> InteractivePlot:
    plots = {}
    for title, (unit, value) in PANELS.items():
        traces = []
        for each in runs:
            members = (each.ensemble or {})["members"]
            found = sorted((int(count), it) for count, values in members.items() if (it := value(values)) is not None)
            if found:
                x, y = zip(*found, strict=True)
                hover = f"%{{x}} members<br>{title} %{{y:.4g}}"
                traces.append(line(each, x, rounded(y, 5), hover, mode="lines+markers"))
        if traces:
            plots[title] = plot(traces, axis("members", dtick=1), axis(f"{title} ({unit})"))
    caption = "Means over subsets of the trained networks, which share the samples that one network has."
    return InteractivePlot("Ensembles", caption, plots, "Shown")
