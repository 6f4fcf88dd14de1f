"""Plots show the records' numbers, and are the same bytes every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.report import save_all, summarise
from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.metric_names import ACCURACY
from contextual_dropout_lab.report.plots import (
    NoData,
    all_plots,
    comparison,
    context_spread,
    drop_probabilities,
    ensembles,
    examples,
    learning_curves,
    telling_examples,
)
from contextual_dropout_lab.report.plots.style import legend, new_figure
from contextual_dropout_lab.report.summary import Summary
from contextual_dropout_lab.store.results import Results
from tests.lab.report.records import METHODS, answered, ensemble, record, write, write_ensemble


@pytest.fixture(scope="module")
def summary(complete: Results) -> Summary:
    return summarise(complete, "mnist")


def line(axes: Axes, label: str) -> Line2D:
    (found,) = (each for each in axes.lines if each.get_label() == label)
    return found


def test_ensembles(summary: Summary) -> None:
    accuracy, pavpu, likelihood = ensembles(summary).axes
    assert [axes.get_title(loc="left") for axes in (accuracy, pavpu, likelihood)] == [
        *("Accuracy", "PAvPU(.05)", "Log-likelihood")
    ]
    assert [each.get_label() for each in accuracy.lines] == [label(method) for method in METHODS]
    np.testing.assert_allclose(line(accuracy, "MC dropout").get_xydata(), [[1, 86.25], [2, 86.5], [3, 86.75]])
    assert "Gating" not in [each.get_label() for each in pavpu.lines]
    assert accuracy.get_xlabel() == "members"


def test_contextual_methods_are_in_front(summary: Summary) -> None:
    axes = ensembles(summary).axes[0]
    ours, theirs = line(axes, "Contextual Bernoulli"), line(axes, "Concrete")
    assert ours.get_linewidth() > theirs.get_linewidth()
    assert ours.get_zorder() > theirs.get_zorder()


def test_learning_curves(results: Results) -> None:
    write(results, *(record("noisy", "contextual-bernoulli", seed, 87.0 + seed) for seed in (0, 1)))
    accuracy, likelihood, prior, _ = learning_curves(summarise(results, "mnist"), "noisy").axes
    mean = [87.5 - 10 / epoch for epoch in (10, 20, 30)]
    np.testing.assert_allclose(line(accuracy, "Contextual Bernoulli").get_ydata(), mean)
    band = accuracy.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(mean[-1] + 0.5**0.5)
    np.testing.assert_allclose(likelihood.lines[0].get_ydata()[0], -1 + 0.005)
    assert [each.get_ydata()[0] for each in prior.lines] == pytest.approx([0.81, 0.82, 0.83])


def test_one_seed_has_no_band_and_no_priors_no_panel(results: Results) -> None:
    write(results, record("noisy", "concrete", 0, 86.0))
    accuracy, _, prior, _ = learning_curves(summarise(results, "mnist"), "noisy").axes
    assert not accuracy.collections
    assert not prior.get_visible()


def test_drop_probabilities_are_averaged_over_seeds(summary: Summary) -> None:
    figure = drop_probabilities(summary, "noisy", "contextual-bernoulli")
    by_layer, by_outcome, by_class = figure.axes
    assert "averaged over 3 seeds" in figure.get_suptitle()
    assert [each.get_text() for each in by_layer.get_xticklabels()] == ["input", "hidden 1", "hidden 2"]
    assert [each.get_text() for each in by_class.get_xticklabels()] == [str(digit) for digit in range(10)]
    whisker, box, median = by_layer.lines[:3]
    np.testing.assert_allclose(whisker.get_ydata(), [0.111, 0.129])
    np.testing.assert_allclose(box.get_ydata(), [0.115, 0.125])
    np.testing.assert_allclose(median.get_ydata(), [0.12])
    assert len(by_outcome.lines) == 3 * 2 * 3


def test_groups_without_samples_are_left_out(results: Results) -> None:
    perfect = record("noisy", "contextual-bernoulli", 0, 100.0)
    for site in perfect["drop_probabilities"]["sites"].values():
        del site["wrong"]
    write(results, perfect)
    figure = drop_probabilities(summarise(results, "mnist"), "noisy", "contextual-bernoulli")
    assert len(figure.axes[1].lines) == 3 * 3
    assert "one seed" in figure.get_suptitle()


def test_context(summary: Summary) -> None:
    bernoulli, gaussian = context_spread(summary, "noisy").axes
    heights = [bar.get_height() for bar in bernoulli.patches]
    assert heights == pytest.approx([0.011, 0.021, 0.031, 0.03, 0.03, 0.03])
    released = line(bernoulli, "released code, over samples")
    assert list(released.get_ydata()) == [0.004, 0.025, 0.016]
    assert "released code, over samples" not in [each.get_label() for each in gaussian.lines]


def test_many_sites_are_numbered(results: Results) -> None:
    """Their names would be over one another; panels are one below the other."""
    write(results, *(answered("noisy", f"contextual-{kind}", 0, 80.0) for kind in ("bernoulli", "gaussian")))
    summary = summarise(results, "mnist")
    figure = context_spread(summary, "noisy")
    above, below = figure.axes
    assert above.get_position().x0 == pytest.approx(below.get_position().x0)
    assert "released code, over samples" not in [each.get_label() for each in above.lines]
    of_sites = [above, *drop_probabilities(summary, "noisy", "contextual-bernoulli").axes]
    for axes in of_sites:
        assert [each.get_text() for each in axes.get_xticklabels()] == [str(number) for number in range(1, 23)]
        assert axes.get_xlabel() == "site, in call order"


def test_soft_answers_have_no_panel_of_classes(results: Results) -> None:
    write(results, answered("noisy", "contextual-bernoulli", 0, 80.0))
    figure = drop_probabilities(summarise(results, "mnist"), "noisy", "contextual-bernoulli")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["By layer", "By layer and outcome"]


@pytest.mark.parametrize(("data", "kind"), [("mnist", "digit"), ("fashion-mnist", "class")])
def test_classes_are_digits_where_they_are(results: Results, data: str, kind: str) -> None:
    write(results, record("noisy", "contextual-bernoulli", 0, 87.0, data=data))
    by_class = drop_probabilities(summarise(results, "mnist"), "noisy", "contextual-bernoulli").axes[2]
    assert (by_class.get_title(loc="left"), by_class.get_xlabel()) == (f"By {kind} (hidden 2)", kind)


def test_comparison_has_a_dot_for_every_seed(summary: Summary) -> None:
    figure = comparison(summary, "noisy")
    accuracy, pavpu, _ = figure.axes
    methods = summary.methods("noisy")
    assert [text.get_text() for text in accuracy.get_yticklabels()] == [label(method) for method in methods]
    dots, mean = accuracy.lines[:2]
    runs = summary.test("noisy", methods[0], ACCURACY)
    assert runs is not None
    assert list(dots.get_xdata()) == list(runs.by_seed.values())
    assert list(mean.get_xdata()) == [runs.mean]
    assert len(pavpu.lines) == len(accuracy.lines) - 2  # gating has no PAvPU


def test_examples_show_what_was_predicted() -> None:
    torch.manual_seed(0)
    predictions = {name: Prediction(torch.rand(9, 5, 3).softmax(-1)) for name in ("concrete", "contextual-bernoulli")}
    images, labels = torch.rand(5, 4, 4), torch.tensor([0, 1, 2, 0, 1])
    figure = examples(images, labels, ("a", "b", "c"), predictions, [3, 1])
    assert len(figure.axes) == 6
    assert figure.axes[3].get_title() == "truth: b"
    answer = "abc"[int(predictions["concrete"].label[3])]
    assert figure.axes[1].get_title().startswith(f"Concrete: {answer}\np = ")
    median = figure.axes[1].lines[4]  # whiskers, caps, then the first median
    assert median.get_ydata()[0] == pytest.approx(predictions["concrete"].samples[:, 3, 0].median().item())


def test_telling_examples_are_of_every_kind() -> None:
    """Right and certain, right and not, wrong and certain, wrong and not: one of each."""

    def samples(top: float, spread: float) -> torch.Tensor:
        wiggle = spread * torch.tensor([-1.0, 1.0]).repeat(10)
        return torch.stack([top + wiggle, 1 - top - wiggle], 1)

    certain, uncertain = samples(0.9, 0.01), samples(0.52, 0.3)
    prediction = Prediction(torch.stack([certain, uncertain, certain, uncertain], 1))
    labels = torch.tensor([0, 0, 1, 1])
    assert telling_examples(prediction, labels) == [3, 2, 1, 0]
    assert telling_examples(prediction, torch.zeros(4, dtype=torch.long), count=2) == [1, 0]


def test_what_cannot_be_drawn_is_told(results: Results) -> None:
    write(results, record("noisy", "concrete", 0, 86.0))
    summary = summarise(results, "mnist")
    drawn, skipped = all_plots(summary)
    assert list(drawn) == ["comparison-noisy", "learning-curves-noisy"]
    assert "no ensembles" in skipped["ensembles"]
    with pytest.raises(NoData, match="original"):
        learning_curves(summary, "original")


def test_files_are_the_same_every_time(results: Results, tmp_path: Path) -> None:
    write(results, *(record("noisy", "contextual-bernoulli", seed, 87.0) for seed in (0, 1)))
    write_ensemble(results, "noisy", "contextual-bernoulli", ensemble(87.0))
    first, second = (save_all(results, "mnist", tmp_path / name) for name in ("a", "b"))
    assert {path.name for path in first} >= {"ensembles.svg", "context-noisy.svg"}
    assert {path.suffix for path in first} == {".svg"}
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_size > 5000
    assert not any(b"<dc:date>" in path.read_bytes() for path in first)


def test_legends_are_not_cut() -> None:
    names = ["Bayes by Backprop (KL weight 0.1)", "Contextual Bernoulli (straight-through)", "Gating + dropout, tuned"]
    figure, (axes,) = new_figure(3.0, 1, 1)
    for name in names * 4:
        axes.plot([0, 1], label=name)
    legend(figure, axes)
    figure.canvas.draw()
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    assert whole.y0 <= box.y0


def test_panels_of_the_learning_curves_have_their_room(complete: Results) -> None:
    """Whatever is in the legend: all methods there are, by their longest names."""
    figure = learning_curves(summarise(complete, "mnist"), "noisy")
    figure.canvas.draw()
    panels, (legend_box,) = figure.axes[:3], [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert min(axes.get_window_extent().width for axes in panels) > 0.35 * figure.bbox.width
    box = legend_box.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
