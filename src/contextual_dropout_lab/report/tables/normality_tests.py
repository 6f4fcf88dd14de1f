"""Table of how often the normality that the t-test assumes is rejected, and if that matters: not in the paper."""

from __future__ import annotations

from torch import Tensor

from contextual_dropout.significance import top_two_p_value, wilcoxon
from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.normality import LEVEL, Normality
from contextual_dropout_lab.report.table import MISSING, Table, number

__all__ = ["normality"]


def normality(found: dict[str, Normality]) -> Table:
    """A row for each method, in percent of its images."""
    columns = ("Method", "Samples", "Images", "Constant", "Rejected", "of uncertain ones", "Verdict as Wilcoxon")
    rows = tuple(_row(method, each) for method, each in found.items())
    notes = (
        f"Rejected: % of the tested images whose differences fail the Shapiro-Wilk test at {LEVEL:g}. Were all normal, "
        f"{100 * LEVEL:g}% would. With some 20 samples it sees strong departures only: what passes may not be normal.",
        "Constant: images not tested, as their differences hardly vary: by a few steps of the half precision in which "
        f"runs keep them. Uncertain: p of the t-test at least {LEVEL:g}.",
        f"Verdict as Wilcoxon: % of all images that paired t and signed-rank test both call certain, or both not, at "
        f"{LEVEL:g}; the latter assumes no normality.",
    )
    return Table("Normality of the differences between the two top classes", columns, rows, notes)


def _row(method: str, found: Normality) -> tuple[str, ...]:
    prediction = found.prediction
    certain = prediction.certain(LEVEL)
    same = certain == (top_two_p_value(prediction.samples, wilcoxon) < LEVEL)
    return (
        label(method),
        *(f"{count:,}" for count in (len(prediction.samples), len(prediction), int((~found.tested).sum()))),
        _percent(found.rejected[found.tested]),
        _percent(found.rejected[found.tested & ~certain]),
        _percent(same),
    )


def _percent(truths: Tensor) -> str:
    return number(100 * truths.double().mean().item(), 1) if len(truths) else MISSING
