"""Missing parts are left out with a note; nothing else is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.report.html import select
from contextual_dropout_lab.report.html.sections import Section, read_section
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.curves import curve_records
from contextual_dropout_lab.runs.run_data import Examples
from contextual_dropout_lab.store.results import PREDICTIONS, Results
from tests.lab.report.html.runs import SIZE, keep, predicted
from tests.lab.report.records import record, write

Two = list[dict[str, Any]]
FIGURES = [
    "Reliability diagram",
    "Risk and coverage",
    "Accuracy against the certainty threshold",
    "p-values of right and wrong answers",
    "Dropout probabilities by layer",
    "Dropout probabilities by class",
]


def section(root: Results, data: Path, setting: str = "noisy") -> Section:
    (selection,) = select(["mnist"], root)
    return read_section(selection, setting, data)


def titles(found: Section) -> list[str]:
    return [figure.title for figure in found.plots]


def work(root: Results, written: dict[str, Any]) -> Path:
    return root.work / RunConfig.from_dict(written["config"]).name / PREDICTIONS


@pytest.fixture
def two(results: Results, examples: Examples) -> Two:
    """Two seeds of a contextual method with their predictions."""
    written = [record("noisy", "contextual-bernoulli", seed, 87.0) for seed in (0, 1)]
    for each in written:
        keep(results, each, examples)
    return written


def test_everything(kept: Results, data: Path) -> None:
    found = section(kept, data)
    assert titles(found) == [*FIGURES, "Ensembles"]
    assert found.gallery is not None
    assert "over 8 samples" in found.caption
    assert "Seed 0, first draw of the test noise." in found.caption
    assert "Gating" not in {method["label"] for method in found.gallery["methods"]}
    assert found.notes == ["One sample, hence no p-values and no place in the gallery: Gating."]
    assert "gating" in found.with_lines
    clean = section(kept, data, "original")
    assert clean.gallery is not None
    assert clean.gallery["noisy"] is None
    assert "noise" not in clean.caption


def test_predictions_of_all_seeds_and_draws(results: Results, two: Two, data: Path) -> None:
    """Correct answers in the plot are those of the stored files."""
    found = section(results, data)
    (line,) = found.plots[1].plots["by p-value"]["data"]
    kept = [results.predictions(RunConfig.from_dict(each["config"])) or {} for each in two]
    labels = torch.arange(SIZE) % 10
    errors = [(each.label != labels).double().mean() for draws in kept for each in draws.values()]
    assert len(errors) == 4
    assert line["y"][-1] == pytest.approx(100 * torch.stack(errors).mean().item(), rel=1e-3)


def test_without_predictions_there_are_the_figures_of_records(results: Results, data: Path, two: Two) -> None:
    shutil.rmtree(results.work)
    found = section(results, data)
    assert titles(found) == FIGURES[4:]
    assert found.gallery is None
    (note,) = found.notes
    assert note == (
        "Plots of predictions and the gallery are left out: neither curves nor predictions at noise of sd 1 are kept "
        "here (runs keep them in their work folder, which --work names)."
    )
    assert found.with_lines == {}


def test_without_predictions_curves_beside_the_records_are_drawn(
    results: Results, data: Path, two: Two, tmp_path: Path
) -> None:
    """Curves alone, as a checkout has them, give the same plots as predictions."""
    of_predictions = section(results, data)
    configs = [RunConfig.from_dict(each["config"]) for each in two]
    assert curve_records(configs, results, data) == [config.name for config in configs]
    of_curves = section(results, data)
    shutil.rmtree(results.work)
    alone = section(results, tmp_path / "nowhere")  # and there is no data set
    assert titles(alone) == FIGURES
    assert alone.plots == of_curves.plots == of_predictions.plots
    assert of_curves.gallery == of_predictions.gallery
    assert alone.gallery is None
    (note,) = alone.notes
    assert note.startswith("The gallery is left out: predictions at noise of sd 1 are not kept here")
    assert "; and the data set mnist is not on this machine" in note
    (note,) = section(results, data).notes
    assert note.startswith("The gallery is left out: predictions at noise of sd 1 are not kept here")


def test_curves_of_another_configuration_are_not_taken(results: Results, data: Path, two: Two) -> None:
    path = results.records / "mnist/noisy/contextual-bernoulli/curves/seed-0.json"
    curve_records([RunConfig.from_dict(each["config"]) for each in two], results, data)
    shutil.rmtree(results.work)
    path.write_text(path.read_text().replace('"digest": "', '"digest": "0'))
    found = section(results, data)
    assert "Predictions that are not kept here, of some seeds: Contextual Bernoulli (seeds 0)." in found.notes
    path.write_text("{")
    assert "Contextual Bernoulli, seed 0, is left out of the plots of predictions" in section(results, data).notes[0]


def test_methods_with_curves_only_are_not_in_the_gallery(
    results: Results, data: Path, two: Two, examples: Examples
) -> None:
    keep(results, other := record("noisy", "concrete", 0, 86.0), examples)
    curve_records([RunConfig.from_dict(other["config"])], results, data)
    work(results, other).unlink()
    found = section(results, data)
    assert found.with_lines == {"concrete": "Concrete", "contextual-bernoulli": "Contextual Bernoulli"}
    assert found.gallery is not None
    assert [method["label"] for method in found.gallery["methods"]] == ["Contextual Bernoulli"]
    assert found.notes == ["Not in the gallery, as their predictions are not kept here: Concrete."]


def test_without_the_data_set_nothing_is_fetched(results: Results, two: Two, tmp_path: Path) -> None:
    found = section(results, tmp_path / "nowhere")
    assert titles(found) == FIGURES[4:]
    assert "the data set mnist is not on this machine: name its folder with --data" in found.notes[0]


def test_where_all_is_missing_both_reasons_are_told(results: Results, two: Two, tmp_path: Path) -> None:
    """A reader who gets the data set would otherwise find that nothing has changed."""
    shutil.rmtree(results.work)
    (note,) = section(results, tmp_path / "nowhere").notes
    assert "are left out: neither curves nor predictions at noise of sd 1 are kept here (" in note
    assert "; and the data set mnist is not on this machine: name its folder with --data" in note


def test_a_damaged_data_set_is_told(results: Results, two: Two, tmp_path: Path, data: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    for path in (tmp_path / "data" / "mnist").iterdir():
        path.write_bytes(b"no image")
    assert "the data set mnist cannot be read" in section(results, tmp_path / "data").notes[0]


def test_methods_without_predictions_are_named_once(results: Results, data: Path, two: Two) -> None:
    for method in ("concrete", "mc-gaussian"):
        other = record("noisy", method, 0, 86.0)
        write(results, other)
    assert titles(section(results, data)) == FIGURES
    for method in ("concrete", "mc-gaussian"):
        path = results.records / "mnist" / "noisy" / method / "seed-0.json"
        same = (results.records / "mnist" / "noisy" / "contextual-bernoulli" / "seed-0.json").read_text()
        path.write_text(same.replace("contextual-bernoulli", method))
    (note,) = section(results, data).notes
    assert note.startswith("Neither curves nor predictions at noise of sd 1 are kept here of MC Gaussian; Concrete:")


def test_runs_on_other_examples_are_told(results: Results, data: Path, two: Two, examples: Examples) -> None:
    keep(results, other := record("noisy", "concrete", 0, 86.0), examples)
    write(results, other)  # with another hash of the data
    assert section(results, data).notes == [
        "Concrete, seed 0, is left out of the plots of predictions and the gallery: it was tested on other examples "
        "than those of mnist here."
    ]


def test_a_lost_seed_is_told(results: Results, data: Path, two: Two) -> None:
    work(results, two[1]).unlink()
    found = section(results, data)
    assert found.notes == ["Predictions that are not kept here, of some seeds: Contextual Bernoulli (seeds 1)."]
    assert titles(found) == FIGURES


def test_damaged_predictions_are_told(results: Results, data: Path, two: Two, examples: Examples) -> None:
    keep(results, record("noisy", "concrete", 0, 86.0), examples)
    path = work(results, two[0])
    path.write_bytes(path.read_bytes()[:100])
    found = section(results, data)
    assert titles(found) == FIGURES
    (note,) = found.notes
    assert note.startswith("Contextual Bernoulli, seed 0, is left out of the plots of predictions and the gallery")
    assert f"{path.name} is damaged" in note
    assert found.gallery is not None
    assert [method["label"] for method in found.gallery["methods"]] == ["Concrete", "Contextual Bernoulli"]
    assert found.caption.endswith("Seed 0 or 1, first draw of the test noise.")


def test_predictions_that_are_not_numbers_are_noted(results: Results, data: Path, two: Two, examples: Examples) -> None:
    config, samples = RunConfig.from_dict(two[0]["config"]), predicted(examples.test_y, 0).samples
    samples[:] = torch.nan
    results.write_predictions(config, {"noise-1": [Prediction(samples)]})
    found = section(results, data)
    assert titles(found) == FIGURES
    (note,) = found.notes
    assert "Contextual Bernoulli, seed 0, is left out" in note
    assert "has logits that are not numbers" in note


def test_predictions_of_another_configuration_are_not_taken(results: Results, data: Path, two: Two) -> None:
    other = {**two[0], "config": {**two[0]["config"], "p": 0.3}}
    shutil.rmtree(work(results, two[1]).parent)
    (results.records / "mnist/noisy/contextual-bernoulli/seed-1.json").unlink()
    write(results, {**other, "digest": RunConfig.from_dict(other["config"]).digest})
    assert section(results, data).gallery is None


def test_samples_that_half_precision_makes_equal_are_told(results: Results, data: Path, examples: Examples) -> None:
    written = record("noisy", "concrete", 0, 86.0)
    keep(results, written, examples)
    config, samples = RunConfig.from_dict(written["config"]), predicted(examples.test_y, 0).samples
    samples[:, :50] = torch.eye(10, dtype=torch.float64)[examples.test_y[:50]]
    results.write_predictions(config, {"noise-1": [Prediction(samples)]})
    assert "in 25.0% of the predictions the samples are equal" in section(results, data).notes[0]
