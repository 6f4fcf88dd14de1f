"""Plots of the curves of predictions: calibration, selective prediction, certainty and p-values."""

from __future__ import annotations

import math
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
    plot,
    rounded,
)
from contextual_dropout_lab.report.html.predictions import StoredPredictions
from contextual_dropout_lab.runs.curves import BARS, Curves

__all__ = ["CERTAIN", "all_prediction_plots", "certainty", "p_values", "reliability", "risk_coverage"]

#: p-values below it are called certain.
CERTAIN = 0.05
#: Predictions that a dot of the reliability diagram needs: the accuracy of a handful is noise.
FEWEST = 20
_TICKS = [1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 1]
_MARK = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": CERTAIN, "x1": CERTAIN}


def all_prediction_plots(kept: Sequence[StoredPredictions]) -> list[InteractivePlot]:
    """All plots that there are curves for."""
    sampled = [each for each in kept if each.curves.p_values]
    return [reliability(kept), risk_coverage(kept), *([certainty(sampled), p_values(sampled)] if sampled else [])]


def reliability(kept: Sequence[StoredPredictions]) -> InteractivePlot:
    """Accuracy against confidence in bins of equal width, over all seeds and draws together."""
    dotted = {"color": "var(--muted)", "width": 1, "dash": "dot"}
    diagonal = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1], "hoverinfo": "skip", "line": dotted}
    caption = (
        "On the dotted line, predictions are right as often as their confidence says; above it they are too modest, "
        f"below it too sure. Larger dots stand for more predictions; those of fewer than {FEWEST} are left out."
    )
    shown = plot(
        [diagonal, *map(_reliability, kept)],
        axis("confidence", range=[0, 1.02]),
        axis("accuracy", range=[0, 1.02]),
    )
    return InteractivePlot("Reliability diagram", caption, {"": shown})


def _reliability(kept: StoredPredictions) -> Plot:
    columns = kept.curves.reliability
    bins = list(zip(columns["predictions"], columns["confidence"], columns["right"], strict=True))
    filled = [each for each in bins if each[0] >= FEWEST]
    shares = [count / sum(columns["predictions"]) for count, _, _ in filled]
    return line(
        kept,
        rounded([confidence / count for count, confidence, _ in filled]),
        rounded([right / count for count, _, right in filled]),
        "confidence %{x:.3f}<br>accuracy %{y:.3f}<br>%{customdata:.2%} of the predictions",
        mode="lines+markers",
        marker={"size": rounded([5 + 9 * math.sqrt(share) for share in shares], 3)},
        customdata=rounded(shares),
    )


def risk_coverage(kept: Sequence[StoredPredictions]) -> InteractivePlot:
    """The error that is left when the most uncertain are refused: means over seeds and draws."""
    plots = {}
    for name in ("p-value", "entropy"):
        traces = [_risk(each, each.curves.risk[name]) for each in kept if name in each.curves.risk]
        if traces:
            plots[f"by {name}"] = plot(
                traces, axis("coverage (%)", range=[0, 101]), axis("error (%)", rangemode="tozero")
            )
    caption = "The error of the predictions that are left when the most uncertain ones are refused; lower is better."
    return InteractivePlot("Risk and coverage", caption, plots, "Refused")


def _risk(kept: StoredPredictions, risk: Sequence[float]) -> Plot:
    coverage, error = ([100 * share for share in shares] for shares in (kept.curves.coverage, risk))
    return line(kept, rounded(coverage), rounded(error), "coverage %{x:.1f}%<br>error %{y:.2f}%")


def certainty(kept: Sequence[StoredPredictions]) -> InteractivePlot:
    """Accuracy of the certain, their share, and PAvPU, against the p-value below which a prediction is certain."""
    found = [(each, _certainty(each.curves)) for each in kept]
    plots = {}
    for name in ("accuracy of the certain", "share that is certain", "PAvPU"):
        hover = f"certain below %{{x:.2g}}<br>{name} %{{y:.2f}}%"
        traces = [line(each, each.curves.thresholds, values[name], hover) for each, values in found]
        ticks = {"type": "log", "tickvals": _TICKS, "ticktext": ["10⁻⁶", "10⁻⁵", "10⁻⁴", "0.001", "0.01", "0.1", "1"]}
        marks = {"shapes": [{**_MARK, "line": {"color": "var(--muted)", "width": 1, "dash": "dot"}}]}
        plots[name] = plot(traces, axis("certain: p-value below", **ticks), axis(f"{name} (%)"), **marks)
    caption = (
        "A prediction is certain if the p-value of its two top classes is below the threshold; the dotted line is "
        "0.05. The accuracy of the certain alone does not say which method is better: one that is seldom certain finds "
        "it easy to be right then. Read it with the share, or take PAvPU, which counts both."
    )
    return InteractivePlot("Accuracy against the certainty threshold", caption, plots, "Shown")


def _certainty(curves: Curves) -> dict[str, list[float | None]]:
    """Accuracy and share of the certain in percent, by threshold; the accuracy of no answers is None."""
    total = sum(curves.reliability["predictions"])
    wrong = total - sum(curves.reliability["right"])
    pairs = list(zip(curves.certain["predictions"], curves.certain["right"], strict=True))
    return {
        "accuracy of the certain": [_percent(good, count) for count, good in pairs],
        "share that is certain": [_percent(count, total) for count, _ in pairs],
        "PAvPU": [_percent(good + wrong - (count - good), total) for count, good in pairs],
    }


def _percent(part: float, whole: float) -> float | None:
    return rounded([100 * part / whole], 5)[0] if whole else None


def p_values(kept: Sequence[StoredPredictions]) -> InteractivePlot:
    """Histograms of p-values where the answer is right, and where it is wrong."""
    plots = {each.label: _histogram(each.curves) for each in ours_first(kept)}
    caption = (
        "Bars are shares of the right and of the wrong answers, each 100% in all. The first bar is what is certain at "
        "0.05: good methods have most of the right answers in it, and few of the wrong ones."
    )
    return InteractivePlot("p-values of right and wrong answers", caption, plots, "Method")


def _histogram(curves: Curves) -> Plot:
    traces: list[dict[str, Any]] = []
    for name, shade in (("right", RIGHT), ("wrong", WRONG)):
        counts = curves.p_values[name]
        traces.append(
            {
                "type": "bar",
                "name": name,
                "x": [round((step + 0.5) / BARS, 3) for step in range(BARS)],
                "y": rounded([100 * count / (sum(counts) or 1) for count in counts]),
                "customdata": [f"{step / BARS:.2f} to {(step + 1) / BARS:.2f}" for step in range(BARS)],
                "marker": {"color": shade},
                "hovertemplate": f"<b>{name}</b><br>p-value %{{customdata}}<br>%{{y:.2f}}%<extra></extra>",
            }
        )
    words = f"certain (p-value below {CERTAIN:g}):<br>{_first_bar(traces)}"
    corner = {"xref": "paper", "yref": "paper", "x": 1, "y": 1, "xanchor": "right", "yanchor": "top"}
    said = {"text": words, "align": "right", "showarrow": False, **corner}
    y = axis("share (%)", range=[0, 100])
    return plot(traces, axis("p-value", range=[0, 1]), y, barmode="group", annotations=[said], **LEGEND)


def _first_bar(traces: Sequence[Plot]) -> str:
    """The first bar in words, as it matters most."""
    return "<br>".join(f"{trace['y'][0]:.1f}% of the {trace['name']} answers" for trace in traces)
