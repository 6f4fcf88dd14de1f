"""Tables of how much the keep probabilities depend on the sample, and what that is worth (erratum 10)."""

from __future__ import annotations

from contextual_dropout_lab.report.paper import RELEASED_CODE
from contextual_dropout_lab.report.summary import Runs, Statistic, Summary
from contextual_dropout_lab.report.table import MISSING, Table, number, of_seeds, signed
from contextual_dropout_lab.report.tables.paper_tables import of_the_paper

__all__ = ["context_spread", "context_value"]

_RELEASED = "Contextual Bernoulli, released code"
_RELEASED_NOTE = (
    f"The released code's figures are our measurements of it, after {RELEASED_CODE.epochs} epochs on noisy MNIST; they "
    "are not in the paper."
)


def context_spread(summary: Summary) -> Table:
    """Keep probabilities of every site: mean, spread over samples, masks and units, prior."""
    columns = (
        *("Setting", "Method", "Site", "Mean keep probability"),
        *("sd over samples", "sd over masks", "sd over units", "Prior"),
    )
    rows = [
        (runs.setting, runs.label, _name(runs, site, place), *_site(runs, site))
        for runs in _contextual(summary)
        for place, site in enumerate(runs.first["contextuality"]["sites"], 1)
    ]
    notes = [
        "sd over samples: within a unit, mean over units, of means over masks; sd over masks: within a unit and a "
        "sample, since later sites read what earlier masks left. sd over units: of the units' mean keep "
        "probabilities. Each is given as mean ± sd over seeds.",
    ]
    if of_the_paper(summary):
        rows += [
            ("noisy", _RELEASED, f"site {index}", MISSING, number(sd, 4), MISSING, MISSING, MISSING)
            for index, sd in enumerate(RELEASED_CODE.sd_over_samples, 1)
        ]
        before, after = RELEASED_CODE.prior
        notes.append(f"{_RELEASED_NOTE} Its learned prior moves from {before:.2f} to {after:.2f}.")
    return Table("Contextuality: keep probabilities", columns, tuple(rows), tuple(notes))


def context_value(summary: Summary) -> Table:
    """The same networks with every unit frozen at its mean keep probability."""
    columns = (
        *("Setting", "Method", "Seeds", "Accuracy: contextual", "frozen", "difference"),
        *("Log-likelihood: contextual", "frozen", "difference", "Predictions changed"),
    )
    rows = [_value(runs) for runs in _contextual(summary)]
    notes = [
        "One draw of the test noise. Difference: contextual less frozen, what the context is worth, paired by seed."
    ]
    if of_the_paper(summary):
        contextual, frozen = RELEASED_CODE.accuracy_contextual, RELEASED_CODE.accuracy_frozen
        accuracies = (number(contextual, 2), number(frozen, 2), signed(contextual - frozen, 2))
        rows.append(("noisy", _RELEASED, MISSING, *accuracies, *[MISSING] * 4))
        notes.append(_RELEASED_NOTE)
    return Table("Contextuality: what freezing the context costs", columns, tuple(rows), tuple(notes))


def _contextual(summary: Summary) -> list[Runs]:
    every = [summary.runs[setting, method] for setting in summary.settings for method in summary.methods(setting)]
    return [runs for runs in every if "contextuality" in runs.first]


def _name(runs: Runs, site: str, place: int) -> str:
    """The name of a site in print; a site without a label has its number too, by which plots call it."""
    label = runs.site_labels.get(site, site)
    return label if label != site else f"{place}: {site}"


def _site(runs: Runs, site: str) -> list[str]:
    return [
        of_seeds(runs.at("contextuality", "sites", site, name), 4)
        for name in ("mean", "sd_over_samples", "sd_over_masks", "sd_over_units", "prior")
    ]


def _value(runs: Runs) -> tuple[str, ...]:
    cells: list[str] = []
    for name, decimals in (("accuracy", 2), ("log_likelihood", 4)):
        contextual, frozen = (runs.at("contextuality", name, each) for each in ("contextual", "frozen"))
        gain = _difference(contextual, frozen)
        sign = "+" if gain and gain.mean >= 0 else ""
        cells += [of_seeds(contextual, decimals), of_seeds(frozen, decimals), sign + of_seeds(gain, decimals)]
    changed = of_seeds(runs.at("contextuality", "predictions_changed"), 0)
    total = runs.first["contextuality"]["examples"]
    return (runs.setting, runs.label, str(len(runs.seeds)), *cells, f"{changed} of {total:,}")


def _difference(first: Statistic | None, second: Statistic | None) -> Statistic | None:
    if first is None or second is None:
        return None
    return Statistic({seed: value - second.by_seed[seed] for seed, value in first.by_seed.items()})
