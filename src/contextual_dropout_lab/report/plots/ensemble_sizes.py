"""The paper's ensemble plot: what more networks add to every kind of dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from contextual_dropout_lab.report.plots.style import NoData, legend, line_style, new_figure, tidy
from contextual_dropout_lab.report.summary import Runs, Summary

__all__ = ["PANELS", "ensembles"]

#: Unit and value by title.
PANELS: dict[str, tuple[str, Callable[[dict[str, Any]], float | None]]] = {
    "Accuracy": ("%", lambda values: values["accuracy"]),
    "PAvPU(.05)": ("%", lambda values: (values["pavpu"] or {}).get("0.05")),
    "Log-likelihood": ("nats", lambda values: values["log_likelihood"]),
}


def ensembles(summary: Summary, setting: str = "noisy") -> Figure:
    """Accuracy, PAvPU and log-likelihood against the number of members, a line for each method.

    Raises:
        NoData: no ensembles were measured.
    """
    measured = [runs for method in summary.methods(setting) if (runs := summary.runs[setting, method]).ensemble]
    if not measured:
        raise NoData(f"no ensembles were measured in the setting {setting}")
    figure, panels = new_figure(3.4, 1, len(PANELS))
    for axes, (title, (unit, value)) in zip(panels, PANELS.items(), strict=True):
        for runs in measured:
            _line(axes, runs, value)
        tidy(axes, title, "members", unit)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, panels[0])
    return figure


def _line(axes: Axes, runs: Runs, value: Callable[[dict[str, Any]], float | None]) -> None:
    members = (runs.ensemble or {})["members"]
    points = sorted((int(count), found) for count, values in members.items() if (found := value(values)) is not None)
    if points:
        axes.plot(*zip(*points, strict=True), **{**line_style(runs.method), "label": runs.label})
