"""The paper's Q-Q plots (Appendix): differences between the two top classes against normal quantiles."""

from __future__ import annotations

import math
from typing import Any

import scipy.stats  # type: ignore[import-untyped, unused-ignore]
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.normality import LEVEL, Normality
from contextual_dropout_lab.report.plots.style import NoData, colour, new_figure

__all__ = ["normality", "spread_over_p_values"]

COLUMNS = 4


def normality(method: str, found: Normality, count: int = 8) -> Figure:
    """Q-Q plots of ``count`` images, from the most certain to the most uncertain, and the share of all rejected.

    Differences are standardised: normal ones follow the diagonal, up to chance.

    Raises:
        NoData: the differences of no image vary.
    """
    rows = spread_over_p_values(found, count)
    if not rows:
        raise NoData(f"the differences of {label(method)} hardly vary on all {len(found.prediction)} images")
    lines = math.ceil(len(rows) / COLUMNS)
    figure, panels = new_figure(1.0 + 1.7 * lines, lines, COLUMNS, sharex=True, sharey=True)
    for axes, row in zip(panels, rows, strict=False):
        _plot(axes, method, found, row)
    for axes in panels[len(rows) :]:
        axes.set_axis_off()
    for axes in panels[: len(rows)][-COLUMNS:]:  # the lowest of each column, where the last line is not full
        axes.tick_params(labelbottom=True)
    figure.supxlabel("normal quantile", fontsize=8)
    figure.supylabel("standardised difference", fontsize=8)
    figure.suptitle(_title(method, found), fontsize=8.5)
    return figure


def spread_over_p_values(found: Normality, count: int) -> list[int]:
    """Images at even distances in the order of their t-test's p-values, of those whose differences vary.

    Example:
        >>> top = 0.5 + torch.tensor([[0.1, 0.2, 0.0], [0.2, 0.2, 0.2], [0.1, 0.3, -0.2]])  # (K, B)
        >>> from contextual_dropout.prediction.classification import Prediction
        >>> spread_over_p_values(Normality(Prediction(torch.stack([top, 1 - top], -1))), count=2)
        [1, 2]
    """
    order = found.prediction.p_value.argsort(stable=True)
    order = order[found.tested[order]]
    places = torch.linspace(0, len(order) - 1, min(count, len(order))).round().long()
    rows: list[int] = order[places].tolist()
    return rows


def _plot(axes: Axes, method: str, found: Normality, row: int) -> None:
    values = found.differences[:, row].double()
    mean, sd = values.mean(), values.std()
    quantiles, ordered = scipy.stats.probplot(((values - mean) / sd).numpy(), fit=False)
    face = "none" if found.rejected[row] else colour(method)
    axes.axline((0, 0), slope=1, color="#777777", linewidth=0.8)
    axes.plot(quantiles, ordered, "o", markersize=3, color=colour(method), markerfacecolor=face)
    t_test, shapiro = float(found.prediction.p_value[row]), float(found.p_value[row])
    axes.set_title(f"t-test p = {t_test:.2g}\nnormality p = {shapiro:.2g}", fontsize=7.5)
    look: dict[str, Any] = {"ha": "right", "transform": axes.transAxes, "fontsize": 6.5, "color": "#555555"}
    axes.text(0.97, 0.04, f"{mean:.2g} ± {sd:.1g}", **look)


def _title(method: str, found: Normality) -> str:
    tested = int(found.tested.sum())
    share = 100 * int(found.rejected.sum()) / tested
    constant = f", {len(found.tested) - tested:,} nearly constant ones left out" if tested < len(found.tested) else ""
    return (
        f"{label(method)}: probability of the top class minus the second, {len(found.differences)} samples\n"
        f"Shapiro-Wilk rejects normality at {LEVEL:g} for {share:.1f}% of {tested:,} images{constant}\n"
        f"({100 * LEVEL:g}% if all were normal; hollow: rejected; in the corner: mean ± sd)"
    )
