"""Learning curves: accuracy, log-likelihood and the learned priors by epoch."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from contextual_dropout_lab.report.method_names import CONTEXTUAL
from contextual_dropout_lab.report.plots.style import NoData, line_style, new_figure, tidy
from contextual_dropout_lab.report.summary import Runs, Summary

__all__ = ["learning_curves"]

_SITE_LINES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")


def learning_curves(summary: Summary, setting: str) -> Figure:
    """Point accuracy on the test set, log-likelihood in training and prior keep probability: mean and sd over seeds.

    Raises:
        NoData: there are no runs of the setting, or none has a curve.
    """
    runs = [each for method in summary.methods(setting) if (each := summary.runs[setting, method]).first["history"]]
    if not runs:
        raise NoData(f"there are no learning curves of the setting {setting}")
    figure, (accuracy, likelihood, prior, rest) = new_figure(5.0, 2, 2)
    for each in runs:
        _band(accuracy, each, lambda point: point["point_accuracy"])
        _band(likelihood, each, lambda point: point["log_likelihood"])
        _priors(prior, each)
    tidy(accuracy, f"Point accuracy, {summary.experiment}, {setting}", "epoch", "%")
    tidy(likelihood, "Training log-likelihood", "epoch", "nats an example")
    tidy(prior, "Learned prior", "epoch", "keep probability")
    for axes in (accuracy, likelihood, prior):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if not prior.lines:
        prior.set_visible(False)
    _legends(accuracy, prior, rest)
    return figure


def _band(axes: Axes, runs: Runs, value: Callable[[dict[str, Any]], float], **style: Any) -> None:
    """The mean over seeds, and a band of one sd to either side where there are several."""
    curves = [[value(point) for point in record["history"]] for record in runs.records.values()]
    epochs = [point["epoch"] for point in runs.first["history"]]
    points = list(zip(*curves, strict=True))
    mean = [statistics.fmean(values) for values in points]
    look = {**line_style(runs.method), "label": runs.label, **style}
    axes.plot(epochs, mean, **look)
    if len(curves) > 1:
        sd = [statistics.stdev(values) for values in points]
        low, high = ([m + sign * s for m, s in zip(mean, sd, strict=True)] for sign in (-1, 1))
        alpha = 0.2 if runs.method in CONTEXTUAL else 0.08
        axes.fill_between(epochs, low, high, color=look["color"], alpha=alpha, linewidth=0)


def _priors(axes: Axes, runs: Runs) -> None:
    """A line for each site, in the method's colour."""
    for site in range(len(runs.first["history"][0]["prior_keep_probability"])):
        line = _SITE_LINES[site % len(_SITE_LINES)]
        _band(axes, runs, lambda point, site=site: point["prior_keep_probability"][site], linestyle=line, markersize=2)  # type: ignore[misc]


def _legends(accuracy: Axes, prior: Axes, rest: Axes) -> None:
    """Draw the legend in the last panel: the methods, and which line of the priors is which site."""
    rest.set_axis_off()
    handles, labels = accuracy.get_legend_handles_labels()
    styles = [line for line in _SITE_LINES if any(each.get_linestyle() == line for each in prior.lines)]
    handles += [Line2D([], [], color="black", linestyle=line, linewidth=1) for line in styles]
    labels += [f"prior of site {index}" for index in range(1, len(styles) + 1)]
    rest.legend(handles, labels, loc="center", frameon=False, fontsize=7, labelspacing=0.3)
