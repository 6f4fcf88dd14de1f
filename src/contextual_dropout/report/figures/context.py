"""Whether keep probabilities vary more between samples or between units."""

from __future__ import annotations

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contextual_dropout.experiments.paper import IN_THE_PAPER, RELEASED_CODE
from contextual_dropout.report.figures.style import NoData, colour, new_figure, tidy
from contextual_dropout.report.summary import Runs, Summary

__all__ = ["context_spread"]


def context_spread(summary: Summary, setting: str) -> Figure:
    """By site: sd over samples within a unit beside sd over units; means over seeds with their sd.

    Raises:
        NoData: the setting has no contextual runs.
    """
    runs = [summary.runs[setting, method] for method in summary.methods(setting)]
    runs = [each for each in runs if "contextuality" in each.first]
    if not runs:
        raise NoData(f"contextuality was not measured in the setting {setting}")
    figure, panels = new_figure(3.0, 1, len(runs), sharey=True)
    for axes, each in zip(panels, runs, strict=True):
        _bars(axes, each, -0.2, "sd_over_samples", "over samples", colour(each.method))
        _bars(axes, each, 0.2, "sd_over_units", "over units", "#BBBBBB")
        _released(axes, each)
        names = list(each.site_labels.values())
        axes.set_xticks(range(len(names)), names)
        axes.grid(visible=False, axis="x")
        title = textwrap.fill(f"{each.label}, {setting}", 72 // len(runs), break_on_hyphens=False)
        tidy(axes, title, "", "sd of keep probability" if axes is panels[0] else "")
        _legend(axes, 2 if len(runs) < 3 else 1)
    return figure


def _bars(axes: Axes, runs: Runs, shift: float, name: str, what: str, shade: str) -> None:
    found = [runs.at("contextuality", "sites", site, name) for site in runs.site_labels]
    means = [each.mean if each else 0.0 for each in found]
    errors = [(each.sd if each else None) or 0.0 for each in found]
    bars = axes.bar([x + shift for x in range(len(found))], means, 0.36, color=shade, label=what)
    if any(errors):
        centres = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        axes.errorbar(centres, means, errors, fmt="none", ecolor="#333333", elinewidth=0.8, capsize=2)


def _legend(axes: Axes, columns: int) -> None:
    """Below the panel, bars first."""
    entries = sorted(zip(*axes.get_legend_handles_labels(), strict=True), key=lambda entry: "released" in entry[1])
    handles, labels = zip(*entries, strict=True)
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.1)}
    axes.legend(handles, labels, ncols=columns, frameon=False, fontsize=7, handlelength=1.0, columnspacing=1.0, **below)


def _released(axes: Axes, runs: Runs) -> None:
    """What the released code has, where it compares: Bernoulli sites on noisy MNIST."""
    spread = RELEASED_CODE.sd_over_samples
    named = IN_THE_PAPER.get(runs.method, runs.method)
    if (runs.setting, named) == ("noisy", "contextual-bernoulli") and len(runs.site_labels) == len(spread):
        at = [x - 0.2 for x in range(len(spread))]
        axes.plot(at, spread, "D", color="black", markersize=3.5, label="released code, over samples", linestyle="none")
