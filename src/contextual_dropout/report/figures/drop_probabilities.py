"""The paper's figure of dropout probabilities: by layer, by right and wrong, by digit."""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from contextual_dropout.report.figures.style import NoData, colour, new_mosaic, tidy
from contextual_dropout.report.methods import label
from contextual_dropout.report.summary import Runs, Summary

__all__ = ["drop_probabilities", "site_quantiles"]

_RIGHT, _WRONG = "#009E73", "#000000"


def drop_probabilities(summary: Summary, setting: str, method: str) -> Figure:
    """Quantiles over samples of the sites' mean drop probabilities; each quantile is averaged over seeds.

    Raises:
        NoData: the method was not run in the setting, or has no sites.
    """
    runs = summary.of(setting, method)
    if runs is None or "drop_probabilities" not in runs.first:
        raise NoData(f"there are no drop probabilities of {label(method)} in the setting {setting}")
    figure, panels = new_mosaic(4.6, [["layer", "outcome"], ["class", "class"]])
    panels["outcome"].sharey(panels["layer"])
    sites = runs.site_labels
    _by_layer(panels["layer"], runs)
    _by_outcome(panels["outcome"], runs)
    last = list(sites)[-1]
    _by_class(panels["class"], runs, last)
    tidy(panels["layer"], "By layer", "", "drop probability")
    tidy(panels["outcome"], "By layer and outcome", "", "")
    tidy(panels["class"], f"By digit ({sites[last]})", "digit", "drop probability")
    count = len(runs.seeds)
    seeds = "one seed" if count == 1 else f"averaged over {count} seeds"
    title = f"{runs.label}, {summary.experiment}, {setting}: 5, 25, 50, 75, 95% quantiles, {seeds}"
    figure.suptitle(title, fontsize=8.5)
    return figure


def site_quantiles(runs: Runs, site: str, group: str) -> list[float]:
    """Averaged over the seeds that have the group."""
    every = (record["drop_probabilities"]["sites"][site].get(group) for record in runs.records.values())
    return [statistics.fmean(values) for values in zip(*(each for each in every if each), strict=True)]


def _glyph(axes: Axes, x: float, quantiles: list[float], shade: str) -> None:
    """A box of five quantiles: a thin line from 5 to 95%, a thick one from 25 to 75%, a dot at the median."""
    if not quantiles:
        return
    lowest, low, median, high, highest = quantiles
    axes.plot([x, x], [lowest, highest], color=shade, linewidth=1.2, solid_capstyle="butt")
    axes.plot([x, x], [low, high], color=shade, linewidth=6, solid_capstyle="butt")
    axes.plot([x], [median], "o", color="white", markeredgecolor=shade, markersize=4, zorder=4)


def _by_layer(axes: Axes, runs: Runs) -> None:
    for x, site in enumerate(runs.site_labels):
        _glyph(axes, x, site_quantiles(runs, site, "all"), colour(runs.method))
    _name_layers(axes, runs)


def _by_outcome(axes: Axes, runs: Runs) -> None:
    groups = {"right": _RIGHT, "wrong": _WRONG}
    for x, site in enumerate(runs.site_labels):
        for shift, (group, shade) in zip((-0.15, 0.15), groups.items(), strict=True):
            _glyph(axes, x + shift, site_quantiles(runs, site, group), shade)
    _name_layers(axes, runs)
    handles = [Line2D([], [], color=shade, linewidth=4, label=group) for group, shade in groups.items()]
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
    axes.legend(handles=handles, ncols=2, frameon=False, fontsize=7.5, handlelength=1.0, columnspacing=1.0, **above)


def _by_class(axes: Axes, runs: Runs, site: str) -> None:
    groups = [name for name in runs.first["drop_probabilities"]["sites"][site] if name.startswith("class ")]
    for x, group in enumerate(groups):
        _glyph(axes, x, site_quantiles(runs, site, group), colour(runs.method))
    axes.set_xticks(range(len(groups)), [name.removeprefix("class ") for name in groups])
    axes.grid(visible=False, axis="x")


def _name_layers(axes: Axes, runs: Runs) -> None:
    names = list(runs.site_labels.values())
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.grid(visible=False, axis="x")
