"""The plot of all methods side by side: every seed a dot, and their mean."""

from __future__ import annotations

from matplotlib.figure import Figure

from contextual_dropout_lab.report.metric_names import ACCURACY, LOG_LIKELIHOOD, PAVPU_05
from contextual_dropout_lab.report.plots.style import NoData, colour, new_figure, tidy
from contextual_dropout_lab.report.summary import Summary

__all__ = ["comparison"]


def comparison(summary: Summary, setting: str = "noisy") -> Figure:
    """Accuracy, PAvPU(.05) and log-likelihood of every method.

    Raises:
        NoData: the setting has no runs.
    """
    methods = summary.methods(setting)
    if not methods:
        raise NoData(f"there are no runs in the setting {setting}")
    panels = {ACCURACY: "%", PAVPU_05: "%", LOG_LIKELIHOOD: "nats"}
    figure, axes = new_figure(0.9 + 0.24 * len(methods), 1, len(panels), sharey=True)
    for panel, (metric, unit) in zip(axes, panels.items(), strict=True):
        for row, method in enumerate(methods):
            found = summary.test(setting, method, metric)
            if found is None:
                continue
            seeds = list(found.by_seed.values())
            panel.plot(seeds, [row] * len(seeds), "o", color=colour(method), alpha=0.55, markersize=4)
            panel.plot([found.mean], [row], "|", color=colour(method), markersize=14, markeredgewidth=2.5)
        tidy(panel, metric.label, unit, "")
    axes[0].set_yticks(range(len(methods)), [summary.label(setting, method) for method in methods])
    axes[0].set_ylim(len(methods) - 0.5, -0.5)
    return figure
