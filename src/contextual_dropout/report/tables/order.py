"""The order of the methods where runs are smaller than the paper's: its figures and ours, each with a place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextual_dropout.experiments.paper import Reported, reported_for
from contextual_dropout.report.metrics import ACCURACY, DOUBLE_SOFTMAX, PAVPU_05, Metric
from contextual_dropout.report.summary import Summary
from contextual_dropout.report.table import MISSING, Table, as_printed, of_seeds

__all__ = ["has_order", "order"]

_NOTES = (
    "Place: 1 is the best, among the methods that both have. The paper's data and network are larger and trained for "
    "longer: orders compare, figures do not.",
    "Ours that are closer to each other than their standard deviations have no order to speak of.",
)
_CONVENTION = "The log-likelihood is in the paper's convention, in which it applies the softmax twice, for both."


def has_order(summary: Summary, setting: str) -> bool:
    """Whether the paper has at least two of the methods of this setting."""
    return len(_shared(summary, setting)) > 1


def order(summary: Summary, setting: str) -> Table:
    """Accuracy, PAvPU and log-likelihood, the paper's and ours, and the places of the methods in each."""
    paper = _shared(summary, setting)
    metrics = [each for each in (ACCURACY, PAVPU_05, DOUBLE_SOFTMAX) if any(each.key in row for row in paper.values())]
    columns = [_columns(summary, setting, paper, metric) for metric in metrics]
    rows = []
    for index, method in enumerate(paper):
        runs = summary.runs[setting, method]
        rows.append((runs.label, str(len(runs.seeds)), *(cell for column in columns for cell in column[index])))
    heads = [head for each in metrics for head in (f"{each.label}: paper", "place", "ours", "place")]
    notes = (*_NOTES, _CONVENTION) if DOUBLE_SOFTMAX in metrics else _NOTES
    return Table(f"The order of the methods, {setting}", ("Method", "Seeds", *heads), tuple(rows), notes)


def _shared(summary: Summary, setting: str) -> dict[str, Mapping[str, Reported]]:
    """The paper's figures of the methods that have runs, in the order of the tables."""
    methods = summary.methods(setting)
    data = {summary.runs[setting, method].first["config"]["data"] for method in methods}
    reported = reported_for(data.pop(), setting) if len(data) == 1 else {}
    return {method: reported[method] for method in methods if method in reported}


def _columns(
    summary: Summary, setting: str, paper: Mapping[str, Mapping[str, Reported]], metric: Metric
) -> list[tuple[str, str, str, str]]:
    """For every method: the paper's figure, its place, ours, its place."""
    theirs = [row.get(metric.key) for row in paper.values()]
    ours = [summary.test(setting, method, metric) for method in paper]
    both = [one is not None and other is not None for one, other in zip(theirs, ours, strict=True)]
    their_places = _places([each.value if each and shared else None for each, shared in zip(theirs, both, strict=True)])
    our_places = _places([each.mean if each and shared else None for each, shared in zip(ours, both, strict=True)])
    return [
        (as_printed(one), their_place, of_seeds(other, metric.decimals), our_place)
        for one, their_place, other, our_place in zip(theirs, their_places, ours, our_places, strict=True)
    ]


def _places(values: Sequence[float | None]) -> list[str]:
    """The place of each value from the largest down; equal values share the better one.

    Example:
        >>> _places([79.5, None, 81.6, 79.5])
        ['2', '—', '1', '2']
    """
    present = [value for value in values if value is not None]
    return [MISSING if value is None else str(1 + sum(other > value for other in present)) for value in values]
