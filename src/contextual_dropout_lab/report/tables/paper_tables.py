"""The paper's tables, with our scores beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from contextual_dropout_lab.report.metric_names import (
    ACCURACY,
    DOUBLE_SOFTMAX,
    LOG_LIKELIHOOD,
    PAVPU_01,
    PAVPU_05,
    PAVPU_10,
    Metric,
)
from contextual_dropout_lab.report.paper import (
    CLEAN_TO_NOISY,
    IN_THE_PAPER,
    RESULTS,
    TRAINING,
    PaperScore,
    comparable,
    exceeded,
    reported_for,
)
from contextual_dropout_lab.report.summary import Statistic, Summary
from contextual_dropout_lab.report.table import MISSING, Table, as_printed, of_seeds, signed

__all__ = [
    "beside_the_paper",
    "clean_to_noisy",
    "complete",
    "differences",
    "noisy_mnist",
    "of_its_size",
    "of_the_paper",
    "original_log_likelihood",
]

#: The metrics that the paper reports, as far as it does.
METRICS = (ACCURACY, PAVPU_01, PAVPU_05, PAVPU_10, DOUBLE_SOFTMAX)
_OURS = "Ours: mean ± sd over seeds. Difference: our mean less the paper's figure."
_TWICE = (
    "The paper has one contextual Bernoulli dropout, trained by ARM; ours is trained by two estimators, and both are "
    "held against it. Temperatures and KL weights are ours, chosen on a validation split: the paper has t = 0.01."
)
_NOISE = "The paper's accuracy is of one draw of the test noise; ours is the mean over several draws."
_CONVENTION = (
    "The paper applies the softmax twice in its log-likelihood; only the columns in its convention compare with it. "
    "The log-likelihood without that name is the real one."
)


def beyond(data: str, setting: str) -> tuple[str, ...]:
    """A note where scores of the paper are above the maximum of its convention."""
    ceiling = exceeded(data, setting)
    if ceiling is None:
        return ()
    return (
        f"In that convention a perfect classifier has {ceiling:.4f}. The paper's figures for contextual dropout are "
        "above it, so they cannot be in this convention, and no run of ours can reach them in it.",
    )


@dataclass(frozen=True)
class Comparison:
    """A comparison: a setting, a noise level of the test, and the paper's scores by method and metric."""

    setting: str
    reported: Mapping[str, Mapping[str, PaperScore]]
    noise: str | None = None

    def pair(self, summary: Summary, method: str, metric: Metric) -> tuple[PaperScore | None, Statistic | None]:
        """The paper's score and ours."""
        return self._paper(method).get(metric.key), summary.test(self.setting, method, metric, self.noise)

    def _paper(self, method: str) -> Mapping[str, PaperScore]:
        return self.reported.get(IN_THE_PAPER.get(method, method), {})

    def printed(self, summary: Summary) -> Iterator[tuple[str, Metric]]:
        """Methods with runs and the metrics that the paper has of them."""
        for method in summary.methods(self.setting):
            for metric in METRICS:
                if metric.key in self._paper(method):
                    yield method, metric

    def table(
        self,
        summary: Summary,
        title: str,
        compared: Sequence[Metric],
        also: Sequence[Metric] = (),
        notes: Sequence[str] = (),
    ) -> Table:
        """A row for each method: for metrics that are ``compared`` paper, ours and difference; for others ours."""
        heads = [head for each in compared for head in (f"{each.label}: paper", "ours", "difference")]
        rows = [self._row(summary, method, compared, also) for method in summary.methods(self.setting, self.reported)]
        columns = ("Method", "Seeds", *heads, *(each.label for each in also))
        twice = [_TWICE] if {*IN_THE_PAPER, *IN_THE_PAPER.values()} <= {*summary.methods(self.setting)} else []
        return Table(title, columns, tuple(rows), (_OURS, *twice, *notes))

    def _row(
        self, summary: Summary, method: str, compared: Sequence[Metric], also: Sequence[Metric]
    ) -> tuple[str, ...]:
        runs = summary.of(self.setting, method)
        seeds = len(runs.seeds) if runs else 0
        cells = [summary.label(self.setting, method), str(seeds) if seeds else MISSING]
        for metric in compared:
            paper, ours = self.pair(summary, method, metric)
            difference = ours.mean - paper.value if ours and paper else None
            cells += [as_printed(paper), of_seeds(ours, metric.decimals, seeds), signed(difference, _decimals(paper))]
        own = (summary.test(self.setting, method, metric, self.noise) for metric in also)
        return (*cells, *(of_seeds(each, metric.decimals, seeds) for each, metric in zip(own, also, strict=True)))


NOISY = Comparison("noisy", RESULTS["noisy"])
ORIGINAL = Comparison("original", RESULTS["original"])
OUT_OF_DISTRIBUTION = Comparison("original", CLEAN_TO_NOISY, "noise-1")


def of_the_paper(summary: Summary) -> bool:
    """Whether the runs as configured are of the paper's experiment: MNIST, its test set, its length of training."""
    records = summary.configured.records
    return bool(records) and all(
        record["config"]["data"] == "mnist"
        and record["config"]["split"] == "test"
        and (record["config"]["epochs"], record["data"]["train"]) == TRAINING
        for record in records
    )


def of_its_size(summary: Summary, setting: str) -> bool:
    """Whether all runs of a setting are of the paper's data, network, test set and length of training."""
    return all(comparable(record) for record in summary.records if record["config"]["setting"] == setting)


def beside_the_paper(summary: Summary, setting: str) -> Table:
    """The table of one setting of the paper's complete results on CIFAR or ImageNet."""
    data = summary.runs[setting, summary.methods(setting)[0]].first["config"]["data"]
    title = f"Results beside the paper's, {data}, {setting}"
    reported = reported_for(data, setting)
    compared = [each for each in METRICS if any(each.key in row for row in reported.values())]
    notes = (_CONVENTION, *beyond(data, setting)) if DOUBLE_SOFTMAX in compared else ()
    return Comparison(setting, reported).table(summary, title, compared, (LOG_LIKELIHOOD,), notes)


def noisy_mnist(summary: Summary) -> Table:
    """The paper's Table 1."""
    title = "Noisy MNIST (the paper's Table 1)"
    notes = (_NOISE, _CONVENTION, *beyond("mnist", "noisy"), "Gating is deterministic and has no PAvPU.")
    return NOISY.table(summary, title, (ACCURACY, PAVPU_05, DOUBLE_SOFTMAX), (LOG_LIKELIHOOD,), notes)


def complete(summary: Summary, setting: str) -> Table:
    """The paper's "Complete results on MNIST with MLP", one setting of it."""
    title = f"Complete results, {setting} MNIST (the paper's appendix)"
    comparison, notes = (NOISY, (_NOISE,)) if setting == "noisy" else (ORIGINAL, ())
    return comparison.table(summary, title, (ACCURACY, PAVPU_01, PAVPU_05, PAVPU_10), (), notes)


def original_log_likelihood(summary: Summary) -> Table:
    """The paper's "Loglikelihood on original MNIST with MLP"."""
    title = "Log-likelihood on original MNIST (the paper's appendix)"
    notes = (_CONVENTION, *beyond("mnist", "original"))
    return ORIGINAL.table(summary, title, (DOUBLE_SOFTMAX,), (LOG_LIKELIHOOD,), notes)


def clean_to_noisy(summary: Summary) -> Table:
    """The paper's paragraph "Out of distribution (OOD) evaluation"."""
    notes = (_NOISE, "The paper does not say which family its contextual and MC dropout are here: we read Bernoulli.")
    title = "Trained on clean data, tested on noisy data"
    return OUT_OF_DISTRIBUTION.table(summary, title, (ACCURACY, PAVPU_05), (LOG_LIKELIHOOD,), notes)


def differences(summary: Summary) -> Table:
    """The table of scores further from the paper's than two standard deviations of the difference."""
    rows, judged, untested = [], 0, 0
    for name, comparison in (("noisy", NOISY), ("original", ORIGINAL), ("clean to noisy", OUT_OF_DISTRIBUTION)):
        for method, metric in comparison.printed(summary):
            paper, ours = comparison.pair(summary, method, metric)
            if paper is None or ours is None:
                continue
            distance = _in_sds(paper, ours)
            untested += distance is None
            judged += distance is not None
            if distance is not None and abs(distance) > 2:
                rows.append(
                    (
                        name,
                        summary.label(comparison.setting, method),
                        metric.label,
                        *_cells(paper, ours, metric),
                        signed(distance, 1),
                    )
                )
    notes = (
        "Listed: more than 2 sd from the paper. The sd of a difference is that of one run of ours and one of the "
        "paper's, and of its rounding; where the paper gives none, its runs are taken to vary as ours do. That its "
        "test noise is one draw is not in it.",
        f"Figures of one seed, which have no sd and are not judged: {untested}.",
    )
    columns = ("Setting", "Method", "Metric", "Paper", "Ours", "Difference", "In sds")
    none = "No such figure." if judged else "Nothing can be judged yet: there is one seed of each."
    return Table("Where we do not match the paper", columns, tuple(rows), notes, none)


def _cells(paper: PaperScore, ours: Statistic, metric: Metric) -> tuple[str, str, str]:
    difference = signed(ours.mean - paper.value, _decimals(paper))
    return as_printed(paper), of_seeds(ours, metric.decimals), difference


def _decimals(paper: PaperScore | None) -> int:
    return paper.decimals if paper else 2


def _in_sds(paper: PaperScore, ours: Statistic) -> float | None:
    if ours.sd is None:
        return None
    rounding = 10.0**-paper.decimals / math.sqrt(12)
    return (ours.mean - paper.value) / math.hypot(ours.sd, ours.sd if paper.sd is None else paper.sd, rounding)
