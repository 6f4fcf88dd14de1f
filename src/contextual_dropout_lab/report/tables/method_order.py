"""The order of the methods where runs are smaller than the paper's: its scores and ours, each with a place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextual_dropout_lab.report.metric_names import ACCURACY, DOUBLE_SOFTMAX, PAVPU_05, Metric
from contextual_dropout_lab.report.paper import IN_THE_PAPER, PaperScore, reported_for
from contextual_dropout_lab.report.summary import Summary
from contextual_dropout_lab.report.table import MISSING, Table, as_printed, of_seeds
from contextual_dropout_lab.report.tables.paper_tables import beyond

__all__ = ["has_order", "order"]

_NOTES = (
    "Place: 1 is the best, among the methods that both have; ours by means over the seeds that all of these have. The "
    "paper's runs are larger, in data, network or length: orders compare, figures do not.",
    "Where ours differ by less than they vary between seeds, there is no order to speak of.",
)
_CONVENTION = "The log-likelihood is in the paper's convention, in which it applies the softmax twice."


def has_order(summary: Summary, setting: str) -> bool:
    """Whether the paper has at least two of the methods of this setting."""
    return sum(bool(row) for row in _paper(summary, setting).values()) > 1


def order(summary: Summary, setting: str) -> Table:
    """Accuracy, PAvPU and log-likelihood, the paper's and ours, and the places of the methods in each."""
    paper = _paper(summary, setting)
    metrics = [each for each in (ACCURACY, PAVPU_05, DOUBLE_SOFTMAX) if any(each.key in row for row in paper.values())]
    columns = [_columns(summary, setting, paper, metric) for metric in metrics]
    rows = []
    for index, method in enumerate(paper):
        runs = summary.runs[setting, method]
        rows.append((runs.label, str(len(runs.seeds)), *(cell for column in columns for cell in column[index])))
    heads = [head for each in metrics for head in (f"{each.label}: paper", "place", "ours", "place")]
    convention = (_CONVENTION, *beyond(_data(summary, setting), setting)) if DOUBLE_SOFTMAX in metrics else ()
    title = f"The order of the methods, {setting}"
    return Table(title, ("Method", "Seeds", *heads), tuple(rows), (*_NOTES, *convention))


def _data(summary: Summary, setting: str) -> str:
    return str(summary.runs[setting, summary.methods(setting)[0]].first["config"]["data"])


def _paper(summary: Summary, setting: str) -> dict[str, Mapping[str, PaperScore]]:
    """The paper's scores of the methods that have runs, in the order of the tables; empty where it has none."""
    reported = reported_for(_data(summary, setting), setting)
    return {method: reported.get(IN_THE_PAPER.get(method, method), {}) for method in summary.methods(setting)}


def _columns(
    summary: Summary, setting: str, paper: Mapping[str, Mapping[str, PaperScore]], metric: Metric
) -> list[tuple[str, str, str, str]]:
    """The cells of every method: the paper's score, its place, ours, its place."""
    theirs = {method: row.get(metric.key) for method, row in paper.items()}
    ours = {method: summary.test(setting, method, metric) for method in paper}
    placed = {method: each.by_seed for method, each in ours.items() if each and theirs[method]}
    seeds = set.intersection(*map(set, placed.values())) if placed else set()
    their_places = _places([each.value if each and method in placed else None for method, each in theirs.items()])
    sums = [sum(placed[method][seed] for seed in seeds) if method in placed and seeds else None for method in paper]
    return [
        (as_printed(theirs[method]), their_place, of_seeds(ours[method], metric.decimals), our_place)
        for method, their_place, our_place in zip(paper, their_places, _places(sums), strict=True)
    ]


def _places(values: Sequence[float | None]) -> list[str]:
    """The place of each value from the largest down; equal values share the better one.

    Example:
        >>> _places([79.5, None, 81.6, 79.5])
        ['2', '—', '1', '2']
    """
    present = [value for value in values if value is not None]
    return [MISSING if value is None else str(1 + sum(other > value for other in present)) for value in values]
