"""The parts of the page that belong to one setting of an experiment: plots and gallery, as far as there are any."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.report.html.examples import GalleryExamples, gallery_examples
from contextual_dropout_lab.report.html.gallery import gallery
from contextual_dropout_lab.report.html.plot_values import InteractivePlot
from contextual_dropout_lab.report.html.prediction_plots import all_prediction_plots
from contextual_dropout_lab.report.html.predictions import (
    GalleryPredictions,
    StoredPredictions,
    config_of,
    have_predictions,
    read_stored,
    tested_on,
)
from contextual_dropout_lab.report.html.record_plots import all_record_plots
from contextual_dropout_lab.report.html.run_selection import Selection
from contextual_dropout_lab.report.plots.style import NoData
from contextual_dropout_lab.report.summary import Runs
from contextual_dropout_lab.runs.run_data import Examples

__all__ = ["Section", "read_section"]

_FOLDER = "runs keep them in their work folder, which --work names"
#: A share of examples that shows in a curve.
_MANY = 0.01


@dataclass
class Section:
    """The contents of a setting's section.

    Attributes:
        setting: its name.
        methods: those that have runs, with their names in print.
        plots: in the order of the page.
        gallery: plain values; None without kept predictions.
        caption: of the gallery.
        notes: what is left out, and why.
    """

    setting: str
    methods: dict[str, str]
    plots: list[InteractivePlot] = field(default_factory=list)
    gallery: dict[str, Any] | None = None
    caption: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def with_lines(self) -> dict[str, str]:
        """Methods that have a line in some plot: those that can be hidden."""
        plots = [plot for figure in self.plots for plot in figure.plots.values()]
        drawn = {trace.get("meta") for plot in plots for trace in plot["data"]}
        return {method: name for method, name in self.methods.items() if method in drawn}


def read_section(selection: Selection, setting: str, data: Path | None) -> Section:
    """Read what the runs of a setting recorded and kept.

    Args:
        selection: the runs.
        setting: e.g. "noisy".
        data: where the data sets are, if not in the usual places.
    """
    runs = [selection.summary.runs[setting, method] for method in selection.summary.methods(setting)]
    section = Section(setting, {each.method: each.label for each in runs})
    examples, unread = _examples(runs[0], data)
    kept = _stored(selection, runs, examples, section.notes)
    reasons = [] if have_predictions(selection.results, runs) else [_not_stored(runs[0], curves=bool(kept))]
    # One alone would not do: a reader who gets the data set should know that predictions are missing too.
    reason = "; and ".join(filter(None, [*reasons, unread])) or "no predictions that are kept here can be used"
    if not kept:
        section.notes.append(f"Plots of predictions and the gallery are left out: {reason}.")
    else:
        section.plots += all_prediction_plots(kept)
        section.notes += [note for each in kept for note in _constant(each)]
        _add_gallery(section, runs[0], kept, examples, data, reason)
    section.plots += all_record_plots(runs)
    return section


def _examples(runs: Runs, data: Path | None) -> tuple[Examples | None, str]:
    """The test examples of the runs, or why they cannot be shown."""
    try:
        return tested_on(config_of(runs), data), ""
    except NoData as missing:
        return None, str(missing)


def _not_stored(runs: Runs, curves: bool) -> str:
    """A note on what is missing where no run stored its predictions; there may be curves of them beside the records."""
    what = (
        f"predictions at {_noise(runs)} are not" if curves else f"neither curves nor predictions at {_noise(runs)} are"
    )
    return f"{what} kept here ({_FOLDER})"


def _noise(runs: Runs) -> str:
    """The noise of training, in words."""
    return f"noise of sd {runs.own_noise.removeprefix('noise-')}"


def _stored(
    selection: Selection, runs: list[Runs], examples: Examples | None, notes: list[str]
) -> list[StoredPredictions]:
    """The curves of all runs that stored curves or predictions; the others are noted, if any run did."""
    noise, found, without, partly = runs[0].own_noise, [], [], []
    for each in runs:
        before = len(notes)
        kept = read_stored(selection.results, each, examples, noise, notes)
        if kept is not None:
            found.append(kept)
        told = len(notes) - before
        missing = [seed for seed in each.seeds if kept is None or seed not in kept.seeds]
        if kept is None and not told:
            without.append(each.label)
        elif kept is not None and len(missing) > told:
            partly.append(f"{each.label} (seeds {', '.join(map(str, missing))})")
    if partly:
        notes.append(f"Predictions that are not kept here, of some seeds: {'; '.join(partly)}.")
    if found and without:
        notes.append(
            f"Neither curves nor predictions at {_noise(runs[0])} are kept here of {'; '.join(without)}: left out of "
            f"the plots of predictions and the gallery ({_FOLDER})."
        )
    return found


def _constant(kept: StoredPredictions) -> list[str]:
    """A note where half precision, in which runs keep their predictions, made the samples of many examples equal."""
    if kept.curves.constant < _MANY:
        return []
    return [
        f"{kept.label}: in {kept.curves.constant:.1%} of the predictions the samples are equal in the precision in "
        "which they are kept, so that their p-values are 0 and tie. Its curves by p-value are worse here than they "
        "were; the tables have the scores of full precision."
    ]


def _add_gallery(
    section: Section,
    runs: Runs,
    kept: list[StoredPredictions],
    examples: Examples | None,
    data: Path | None,
    reason: str,
) -> None:
    """The gallery of the methods with several samples, if their predictions are stored and show anything."""
    if single := [each.label for each in kept if not each.curves.p_values]:
        section.notes.append(f"One sample, hence no p-values and no place in the gallery: {'; '.join(single)}.")
    sampled = [each for each in kept if each.curves.p_values]
    predicted = {each.method: each.predicted for each in sampled if each.predicted is not None}
    if not predicted or examples is None:
        section.notes += [f"The gallery is left out: {reason}."] if sampled else []
        return
    try:
        shown = gallery_examples(config_of(runs), examples, data)
    except ExperimentError as unseen:
        section.notes.append(f"The gallery is left out: {unseen}.")
        return
    if absent := [each.label for each in sampled if each.predicted is None]:
        section.notes.append(f"Not in the gallery, as their predictions are not kept here: {'; '.join(absent)}.")
    section.gallery = gallery(predicted, section.methods, shown)
    section.caption = _caption(list(predicted.values()), shown, config_of(runs).noise_sd)


def _caption(predicted: list[GalleryPredictions], shown: GalleryExamples, noise_sd: float) -> str:
    seeds = sorted({each.seed for each in predicted})
    samples = sorted({len(each.prediction.samples) for each in predicted})
    return (
        f"Test {'questions' if shown.texts else 'images'} that stand out, with box plots of the class probabilities "
        f"over {_either(samples)} samples, from the lowest to the highest; the true class in bold. Seed "
        f"{_either(seeds)}{', first draw of the test noise' if noise_sd else ''}."
    )


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))
