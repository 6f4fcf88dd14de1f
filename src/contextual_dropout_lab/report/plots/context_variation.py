"""The plot of whether keep probabilities vary more between samples or between units."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contextual_dropout_lab.report.paper import IN_THE_PAPER, RELEASED_CODE
from contextual_dropout_lab.report.plots.style import NoData, colour, new_figure, tidy
from contextual_dropout_lab.report.summary import Runs, Summary
from contextual_dropout_lab.report.tables import of_the_paper

__all__ = ["FEW", "NUMBERS", "context_spread", "name_sites"]

#: Sites that panels side by side have room for; more of them are numbered, and panels are one below the other.
FEW = 5
#: Numbers that a panel as wide as the page has room for.
NUMBERS = 30


def context_spread(summary: Summary, setting: str) -> Figure:
    """Draw by site the sd over samples within a unit beside the sd over units; means over seeds with their sd.

    Raises:
        NoData: the setting has no contextual runs.
    """
    runs = [summary.runs[setting, method] for method in summary.methods(setting)]
    runs = [each for each in runs if "contextuality" in each.first]
    if not runs:
        raise NoData(f"contextuality was not measured in the setting {setting}")
    few = all(len(each.site_labels) <= FEW for each in runs)
    rows, columns = (1, len(runs)) if few else (len(runs), 1)
    figure, panels = new_figure(3.0 if few else 1.9 * rows, rows, columns, sharey=True)
    for axes, each in zip(panels, runs, strict=True):
        _bars(axes, each, -0.2, "sd_over_samples", "over samples", colour(each.method))
        _bars(axes, each, 0.2, "sd_over_units", "over units", "#BBBBBB")
        if of_the_paper(summary):
            _released(axes, each)
        title = textwrap.fill(f"{each.label}, {setting}", 72 // columns, break_on_hyphens=False)
        tidy(axes, title, "", "sd of keep probability" if axes is panels[0] or not few else "")
        name_sites(axes, list(each.site_labels.values()))
        _legend(axes, 2 if columns < 3 else 1, below=few)
    return figure


def name_sites(axes: Axes, names: Sequence[str]) -> None:
    """Names of sites on the axis, or where these are too many their numbers, by which the tables call them too."""
    axes.grid(visible=False, axis="x")
    if len(names) <= FEW:
        axes.set_xticks(range(len(names)), names)
        return
    shown = range(0, len(names), -(-len(names) // NUMBERS))
    axes.set_xticks(list(shown), [str(place + 1) for place in shown])
    axes.set_xlabel("site, in call order")


def _bars(axes: Axes, runs: Runs, shift: float, name: str, what: str, shade: str) -> None:
    found = [runs.at("contextuality", "sites", site, name) for site in runs.site_labels]
    means = [each.mean if each else 0.0 for each in found]
    errors = [(each.sd if each else None) or 0.0 for each in found]
    bars = axes.bar([x + shift for x in range(len(found))], means, 0.36, color=shade, label=what)
    if any(errors):
        centres = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        axes.errorbar(centres, means, errors, fmt="none", ecolor="#333333", elinewidth=0.8, capsize=2)


def _legend(axes: Axes, columns: int, *, below: bool) -> None:
    """Place the legend below the panel, or at the right above it; bars first."""
    entries = sorted(zip(*axes.get_legend_handles_labels(), strict=True), key=lambda entry: "released" in entry[1])
    handles, labels = zip(*entries, strict=True)
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
    if below:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.1)}
    axes.legend(handles, labels, ncols=columns, frameon=False, fontsize=7, handlelength=1.0, columnspacing=1.0, **place)


def _released(axes: Axes, runs: Runs) -> None:
    """The values of the released code, where they compare: Bernoulli sites on noisy MNIST."""
    spread = RELEASED_CODE.sd_over_samples
    named = IN_THE_PAPER.get(runs.method, runs.method)
    if (runs.setting, named) == ("noisy", "contextual-bernoulli") and len(runs.site_labels) == len(spread):
        at = [x - 0.2 for x in range(len(spread))]
        axes.plot(at, spread, "D", color="black", markersize=3.5, label="released code, over samples", linestyle="none")
