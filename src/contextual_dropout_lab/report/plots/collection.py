"""Draw and save all plots of an experiment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import matplotlib
from matplotlib.figure import Figure

from contextual_dropout_lab.report.method_names import CONTEXTUAL, ordered
from contextual_dropout_lab.report.plots.context_variation import context_spread
from contextual_dropout_lab.report.plots.drop_probability_plot import drop_probabilities
from contextual_dropout_lab.report.plots.ensemble_sizes import ensembles
from contextual_dropout_lab.report.plots.method_comparison import comparison
from contextual_dropout_lab.report.plots.style import NoData
from contextual_dropout_lab.report.plots.training_curves import learning_curves
from contextual_dropout_lab.report.summary import Summary, summarise
from contextual_dropout_lab.store.files import replace_file
from contextual_dropout_lab.store.results import Results

__all__ = ["all_plots", "save", "save_all"]

_LOG = logging.getLogger(__name__)
# Files that are tracked: neither dates nor versions nor random names.
_METADATA: dict[str, dict[str, str | None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def all_plots(summary: Summary) -> tuple[dict[str, Figure], dict[str, str]]:
    """Plots by name, and of those that cannot be drawn the reason."""
    drawn: dict[str, Figure] = {}
    skipped: dict[str, str] = {}
    for name, draw in _plan(summary).items():
        figure = _unless_empty(draw)
        if isinstance(figure, NoData):
            skipped[name] = str(figure)
        else:
            drawn[name] = figure
    return drawn, skipped


def save_all(results: Results, experiment: str, directory: Path) -> list[Path]:
    """Write every plot that can be drawn, as SVG; the same records give the same bytes.

    Args:
        results: where the records are.
        experiment: e.g. "mnist".
        directory: for the plots; the page expects them in figures/<experiment> beside it.

    Returns:
        The files. Plots without data are left out; why is logged, and said on the page.
    """
    drawn, skipped = all_plots(summarise(results, experiment))
    for name, reason in skipped.items():
        _LOG.info("plot %s is left out: %s", name, reason)
    return [save(figure, directory, name) for name, figure in drawn.items()]


def save(figure: Figure, directory: Path, name: str, kind: Literal["png", "svg"] = "svg") -> Path:
    """Write a plot; the same plot gives the same bytes.

    Args:
        figure: what to write.
        directory: for the file.
        name: of the file, without its ending.
        kind: SVG for plots, PNG for plots that show photographs.
    """
    path = directory / f"{name}.{kind}"
    with matplotlib.rc_context({"svg.hashsalt": path.stem}), replace_file(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=200, metadata=_METADATA[kind])
    return path


def _plan(summary: Summary) -> dict[str, Callable[[], Figure]]:
    plan: dict[str, Callable[[], Figure]] = {"ensembles": partial(ensembles, summary)}
    for setting in summary.settings:
        plan[f"comparison-{setting}"] = partial(comparison, summary, setting)
        plan[f"learning-curves-{setting}"] = partial(learning_curves, summary, setting)
        plan[f"context-{setting}"] = partial(context_spread, summary, setting)
        measured = (name for name in summary.methods(setting) if "contextuality" in summary.runs[setting, name].first)
        for method in ordered([*CONTEXTUAL, *measured]):
            plan[f"drop-probabilities-{setting}-{method}"] = partial(drop_probabilities, summary, setting, method)
    return plan


def _unless_empty(draw: Callable[[], Figure]) -> Figure | NoData:
    try:
        return draw()
    except NoData as reason:
        return reason
