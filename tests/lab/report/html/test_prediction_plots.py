"""The numbers of the plots of predictions, against torchmetrics, numpy and direct computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

from contextual_dropout.metrics import PAvPU
from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.report.html import prediction_plots
from contextual_dropout_lab.report.html.plot_values import InteractivePlot
from contextual_dropout_lab.report.html.predictions import StoredPredictions
from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.runs.curves import BINS, curves_of
from tests.lab.report.html.runs import predicted

LABELS = torch.arange(3000) % 10


def of(predictions: Sequence[Prediction], labels: Tensor = LABELS, method: str = "concrete") -> StoredPredictions:
    return StoredPredictions(method, label(method), [0], curves_of(predictions, labels))


@dataclass(frozen=True)
class Lines:
    """The values that the plots show, from the predictions themselves: (D, N) each."""

    confidence: Tensor
    entropy: Tensor
    p_value: Tensor
    correct: Tensor


@pytest.fixture(scope="module")
def predictions() -> list[Prediction]:
    """Two draws, calibrated badly."""
    return [predicted(LABELS, seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def kept(predictions: list[Prediction]) -> StoredPredictions:
    return of(predictions)


@pytest.fixture(scope="module")
def lines(predictions: list[Prediction]) -> Lines:
    found = [(each.confidence, each.entropy, each.p_value, (each.label == LABELS).double()) for each in predictions]
    return Lines(*(torch.stack(each) for each in zip(*found, strict=True)))


def trace(figure: InteractivePlot, choice: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in figure.plots[choice]["data"] if each.get("name") == name)
    return dict(found)


def test_reliability_adds_up_to_the_calibration_error(
    kept: StoredPredictions, predictions: list[Prediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_plots, "FEWEST", 1)
    found = trace(prediction_plots.reliability([kept]), "", "Concrete")
    gaps = np.abs(np.array(found["x"]) - np.array(found["y"]))
    mean = torch.cat([each.mean for each in predictions])
    expected = multiclass_calibration_error(mean, LABELS.repeat(2), 10, n_bins=BINS)
    assert np.dot(gaps, found["customdata"]) == pytest.approx(expected.item(), abs=1e-3)
    assert expected > 0.05
    assert sum(found["customdata"]) == pytest.approx(1, abs=1e-3)


def test_a_handful_of_predictions_has_no_dot(kept: StoredPredictions, lines: Lines) -> None:
    found = trace(prediction_plots.reliability([kept]), "", "Concrete")
    counts, _ = np.histogram(lines.confidence.flatten(), BINS, (0, 1))
    assert (counts[counts > 0] < prediction_plots.FEWEST).sum() > 0
    assert len(found["x"]) == (counts >= prediction_plots.FEWEST).sum()


@pytest.mark.parametrize("score", ["p-value", "entropy"])
def test_risk_of_what_is_left(kept: StoredPredictions, lines: Lines, score: str) -> None:
    found = trace(prediction_plots.risk_coverage([kept]), f"by {score}", "Concrete")
    uncertainty = lines.p_value if score == "p-value" else lines.entropy
    for coverage, risk in list(zip(found["x"], found["y"], strict=True))[::9]:
        left = round(coverage / 100 * len(LABELS))
        errors = [
            100 * (1 - correct[each.argsort()[:left]].mean().item())
            for each, correct in zip(uncertainty, lines.correct, strict=True)
        ]
        assert risk == pytest.approx(np.mean(errors), rel=1e-3, abs=1e-6)
    assert found["x"][-1] == 100
    assert found["y"][-1] == pytest.approx(100 * (1 - lines.correct.mean().item()), rel=1e-3)
    assert len(found["x"]) == 100


def test_accuracy_share_and_pavpu_at_every_threshold(kept: StoredPredictions, lines: Lines) -> None:
    figure = prediction_plots.certainty([kept])
    assert "seldom certain" in figure.caption
    accuracy, share, pavpu = (
        trace(figure, choice, "Concrete") for choice in ("accuracy of the certain", "share that is certain", "PAvPU")
    )
    assert {0.01, 0.05, 0.1} <= set(accuracy["x"])
    for place, threshold in enumerate(accuracy["x"]):
        certain = lines.p_value < threshold
        assert share["y"][place] == pytest.approx(100 * certain.double().mean().item(), rel=1e-4)
        if certain.any():
            assert accuracy["y"][place] == pytest.approx(100 * lines.correct[certain].mean().item(), rel=1e-4)
        if 0 < threshold < 1:
            metric = PAvPU(threshold)
            metric.update(lines.p_value.flatten(), lines.correct.flatten())
            assert pavpu["y"][place] == pytest.approx(100 * metric.compute().item(), rel=1e-4)


def test_the_accuracy_of_nothing_is_not_drawn() -> None:
    uncertain = of([Prediction(torch.tensor([[[0.6, 0.4]], [[0.4, 0.6]]]).double())], torch.tensor([0]))
    accuracy = trace(prediction_plots.certainty([uncertain]), "accuracy of the certain", "Concrete")
    assert set(accuracy["y"]) == {None}


def test_p_values_of_right_and_wrong_answers(kept: StoredPredictions, lines: Lines) -> None:
    plot = prediction_plots.p_values([kept]).plots["Concrete"]
    for name, chosen in (("right", lines.correct == 1), ("wrong", lines.correct == 0)):
        (found,) = (each for each in plot["data"] if each["name"] == name)
        counts, _ = np.histogram(lines.p_value[chosen], 20, (0, 1))
        np.testing.assert_allclose(found["y"], 100 * counts / counts.sum(), rtol=1e-3)
        certain = 100 * (lines.p_value[chosen] < 0.05).double().mean().item()
        assert f"{certain:.1f}% of the {name} answers" in plot["layout"]["annotations"][0]["text"]
    assert "type" not in plot["layout"]["yaxis"]  # linear: a logarithm hides how much is in the first bar


def test_one_sample_has_no_p_values() -> None:
    single = of([predicted(LABELS, 0, samples=1)], method="gating")
    assert [figure.title for figure in prediction_plots.all_prediction_plots([single])] == [
        "Reliability diagram",
        "Risk and coverage",
    ]
    assert list(prediction_plots.risk_coverage([single]).plots) == ["by entropy"]


def test_contextual_methods_are_chosen_first(predictions: list[Prediction]) -> None:
    both = [of(predictions, method=method) for method in ("concrete", "contextual-gaussian")]
    assert list(prediction_plots.p_values(both).plots) == ["Contextual Gaussian", "Concrete"]
