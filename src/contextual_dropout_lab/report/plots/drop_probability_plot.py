"""The paper's plot of dropout probabilities: by layer, by right and wrong, by class."""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.plots.context_variation import FEW, NUMBERS, name_sites
from contextual_dropout_lab.report.plots.style import NoData, colour, new_mosaic, tidy
from contextual_dropout_lab.report.summary import Runs, Summary

__all__ = ["drop_probabilities", "site_quantiles"]

_RIGHT, _WRONG = "#009E73", "#000000"
#: Data sets whose classes are digits.
_DIGITS = ("mnist", "digits")


def drop_probabilities(summary: Summary, setting: str, method: str) -> Figure:
    """Quantiles over samples of the sites' mean drop probabilities; each quantile is averaged over seeds.

    Soft answers have no classes and no panel of them.

    Raises:
        NoData: the method was not run in the setting, or has no sites.
    """
    runs = summary.of(setting, method)
    if runs is None or "drop_probabilities" not in runs.first:
        raise NoData(f"there are no drop probabilities of {label(method)} in the setting {setting}")
    sites = runs.site_labels
    last, few = list(sites)[-1], len(sites) <= FEW
    classes = _classes(runs, last)
    layout = [["layer", "outcome"]] if few else [["layer"], ["outcome"]]
    layout += [["class"] * len(layout[0])] if classes else []
    figure, panels = new_mosaic(2.3 * len(layout), layout)
    panels["outcome"].sharey(panels["layer"])
    tidy(panels["layer"], "By layer", "", "drop probability")
    tidy(panels["outcome"], "By layer and outcome", "", "" if few else "drop probability")
    _by_layer(panels["layer"], runs)
    _by_outcome(panels["outcome"], runs)
    if classes:
        kind = "digit" if runs.first["config"]["data"] in _DIGITS else "class"
        tidy(panels["class"], f"By {kind} ({sites[last]})", kind, "drop probability")
        _by_class(panels["class"], runs, last, classes)
    count = len(runs.seeds)
    seeds = "one seed" if count == 1 else f"averaged over {count} seeds"
    title = f"{runs.label}, {summary.experiment}, {setting}: 5, 25, 50, 75, 95% quantiles, {seeds}"
    figure.suptitle(title, fontsize=8.5)
    return figure


def site_quantiles(runs: Runs, site: str, group: str) -> list[float]:
    """The values averaged over the seeds that have the group."""
    every = (record["drop_probabilities"]["sites"][site].get(group) for record in runs.records.values())
    return [statistics.fmean(values) for values in zip(*(each for each in every if each), strict=True)]


def _glyph(axes: Axes, x: float, quantiles: list[float], shade: str, count: int) -> None:
    """A box of five quantiles: a thin line from 5 to 95%, a thick one from 25 to 75%, a dot at the median.

    The more there are of it beside one another, ``count``, the thinner it is.
    """
    if not quantiles:
        return
    lowest, low, median, high, highest = quantiles
    wide = min(6.0, 110 / count)  # points
    axes.plot([x, x], [lowest, highest], color=shade, linewidth=wide / 5, solid_capstyle="butt")
    axes.plot([x, x], [low, high], color=shade, linewidth=wide, solid_capstyle="butt")
    axes.plot([x], [median], "o", color="white", markeredgecolor=shade, markersize=wide * 2 / 3, zorder=4)


def _by_layer(axes: Axes, runs: Runs) -> None:
    for x, site in enumerate(runs.site_labels):
        _glyph(axes, x, site_quantiles(runs, site, "all"), colour(runs.method), len(runs.site_labels))
    _name_layers(axes, runs)


def _by_outcome(axes: Axes, runs: Runs) -> None:
    groups = {"right": _RIGHT, "wrong": _WRONG}
    for x, site in enumerate(runs.site_labels):
        for shift, (group, shade) in zip((-0.15, 0.15), groups.items(), strict=True):
            _glyph(axes, x + shift, site_quantiles(runs, site, group), shade, len(runs.site_labels))
    _name_layers(axes, runs)
    handles = [Line2D([], [], color=shade, linewidth=4, label=group) for group, shade in groups.items()]
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
    axes.legend(handles=handles, ncols=2, frameon=False, fontsize=7.5, handlelength=1.0, columnspacing=1.0, **above)


def _classes(runs: Runs, site: str) -> list[str]:
    """The groups that are classes, in their order."""
    return [name for name in runs.first["drop_probabilities"]["sites"][site] if name.startswith("class ")]


def _by_class(axes: Axes, runs: Runs, site: str, classes: list[str]) -> None:
    for x, group in enumerate(classes):
        _glyph(axes, x, site_quantiles(runs, site, group), colour(runs.method), len(classes))
    shown = range(0, len(classes), -(-len(classes) // NUMBERS))
    axes.set_xticks(shown, [classes[place].removeprefix("class ") for place in shown])
    axes.grid(visible=False, axis="x")


def _name_layers(axes: Axes, runs: Runs) -> None:
    name_sites(axes, list(runs.site_labels.values()))
    axes.set_xlim(-0.5, len(runs.site_labels) - 0.5)
