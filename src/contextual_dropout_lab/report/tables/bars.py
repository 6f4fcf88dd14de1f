"""What was to be reached, and whether it was."""

from __future__ import annotations

import statistics
import warnings
from dataclasses import dataclass

import scipy  # whose parts load at first use

from contextual_dropout_lab.report.method_names import CONTEXTUAL, baselines, label
from contextual_dropout_lab.report.metric_names import ACCURACY, LOG_LIKELIHOOD, PAVPU_05, Metric
from contextual_dropout_lab.report.summary import Statistic, Summary
from contextual_dropout_lab.report.table import MISSING, Table, number, of_seeds, p_in_words

__all__ = ["bars"]


@dataclass(frozen=True)
class Threshold:
    """A figure to be reached."""

    setting: str
    method: str
    metric: Metric
    bar: float

    def row(self, summary: Summary) -> tuple[str, ...]:
        """The bar, our figure, what it is held against, the verdict and the evidence."""
        bar = f"{summary.label(self.setting, self.method)}, {self.setting}: {self.metric.label} at least {self.bar:g}"
        ours = summary.test(self.setting, self.method, self.metric)
        if ours is None:
            return (bar, MISSING, MISSING, "not measured", "")
        reached = sum(value >= self.bar for value in ours.by_seed.values())
        evidence = f"{reached} of {ours.n} seeds reach it"
        verdict = _verdict(ours.mean >= self.bar, ours.mean - self.bar, self.metric.decimals)
        return (bar, of_seeds(ours, self.metric.decimals), f"{self.bar:g}", verdict, evidence)


@dataclass(frozen=True)
class Lead:
    """A method's lead over a baseline: the mean difference, over the seeds that both have where there are any."""

    baseline: str
    theirs: Statistic
    margin: float
    pairs: int
    p: float | None


@dataclass(frozen=True)
class Ahead:
    """A contextual method to be ahead of every baseline, those that we added too if ``added``."""

    setting: str
    method: str
    metric: Metric
    added: bool

    def row(self, summary: Summary) -> tuple[str, ...]:
        """The bar, our figure, the baseline that comes closest, the verdict and the evidence."""
        whose = "every baseline, our added ones too" if self.added else "every baseline of the paper"
        bar = f"{summary.label(self.setting, self.method)}, {self.setting}: {self.metric.label} ahead of {whose}"
        ours = summary.test(self.setting, self.method, self.metric)
        if ours is None:
            return (bar, MISSING, MISSING, "not measured", "")
        leads = [
            _lead(ours, name, theirs)
            for name in baselines(added=self.added)
            if (theirs := summary.test(self.setting, name, self.metric))
        ]
        absent = [name for name in baselines(added=self.added) if summary.of(self.setting, name) is None]
        decimals = self.metric.decimals
        if not leads:
            return (bar, of_seeds(ours, decimals), MISSING, "not measured", "no baseline measured")
        closest = min(leads, key=lambda lead: lead.margin)
        verdict = _verdict(closest.margin > 0, closest.margin, decimals)
        if absent and closest.margin > 0:
            verdict = f"open: ahead by {number(closest.margin, decimals)} so far"
        evidence = "; ".join([*_evidence(leads, closest), *_not_run(absent)])
        against = f"{summary.label(self.setting, closest.baseline)} {of_seeds(closest.theirs, decimals)}"
        return (bar, of_seeds(ours, decimals), against, verdict, evidence)


def bars(summary: Summary) -> Table:
    """Met or missed, and by how much."""
    checks: list[Threshold | Ahead] = [
        Threshold("noisy", method, metric, bar)
        for method in ("contextual-bernoulli", "contextual-bernoulli-arm")  # the latter by the paper's estimator
        for metric, bar in ((ACCURACY, 87.4), (PAVPU_05, 87.8))
    ]
    checks += [Threshold("original", method, ACCURACY, 98.9) for method in (*CONTEXTUAL, "contextual-bernoulli-arm")]
    checks += [
        Ahead("noisy", method, metric, added)
        for added in (False, True)
        for method in CONTEXTUAL
        for metric in (ACCURACY, PAVPU_05, LOG_LIKELIHOOD)
    ]
    notes = (
        "Verdicts are about our means. A lead is the mean over the seeds that both methods have; p is of a two-sided "
        "paired t-test over these. A claim about every baseline is as strong as its largest p.",
        "The log-likelihood is the real one. A deterministic method has no PAvPU and is not compared in it.",
    )
    rows = tuple(check.row(summary) for check in checks)
    return Table("Bars: what was to be reached", ("Bar", "Ours", "Against", "Verdict", "Evidence"), rows, notes)


def paired_p(differences: list[float]) -> float | None:
    """p-value of a two-sided paired t-test; None without two pairs, or where the differences do not vary.

    Example:
        >>> round(paired_p([1.0, 2.0, 3.0]), 4)
        0.0742
    """
    if len(differences) < 2 or statistics.stdev(differences) == 0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nearly equal differences
        return float(scipy.stats.ttest_1samp(differences, 0.0).pvalue)


def _lead(ours: Statistic, baseline: str, theirs: Statistic) -> Lead:
    pairs = [value - theirs.by_seed[seed] for seed, value in ours.by_seed.items() if seed in theirs.by_seed]
    margin = statistics.fmean(pairs) if pairs else ours.mean - theirs.mean
    return Lead(baseline, theirs, margin, len(pairs), paired_p(pairs))


def _verdict(met: bool, margin: float, decimals: int) -> str:
    least = 10.0**-decimals
    size = number(abs(margin), decimals) if abs(margin) >= least else f"less than {least:.{decimals}f}"
    return f"{'met' if met else 'missed'} by {size}"


def _evidence(leads: list[Lead], closest: Lead) -> list[str]:
    if closest.pairs == 0:
        return ["no seed in common: means of different seeds, no test"]
    if closest.p is None:
        return [f"paired over {closest.pairs} seed{'s' if closest.pairs > 1 else ''}: no test"]
    words = [f"paired over {closest.pairs} seeds, p {p_in_words(closest.p)}"]
    weakest, p = max(((lead, lead.p) for lead in leads if lead.p is not None), key=lambda pair: pair[1])
    if p_in_words(p) != p_in_words(closest.p):
        words.append(f"largest p {p_in_words(p)} ({label(weakest.baseline)})")
    return words


def _not_run(absent: list[str]) -> list[str]:
    return [f"not run: {', '.join(map(label, absent))}"] if absent else []
