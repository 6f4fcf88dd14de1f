"""Box plots: of the images with the largest p-values, readable in colour and with many classes."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.report.plots import examples, uncertain
from contextual_dropout_lab.report.plots.panels import shown_classes
from contextual_dropout_lab.report.plots.uncertain_images import most_uncertain

CLASSES = ("a", "b", "c")


def prediction(seed: int, images: int = 12, classes: int = 3) -> Prediction:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(1, images, classes, dtype=torch.float64, generator=generator)
    return Prediction((centres + torch.randn(20, images, classes, generator=generator)).softmax(-1))


def draw(predictions: dict[str, Prediction], method: str, count: int, **options: Tensor) -> Figure:
    images = torch.arange(12.0)[:, None, None] * torch.ones(12, 4, 4)  # image n has the value n
    return uncertain(images, torch.arange(12) % 3, CLASSES, predictions, method, count, **options)


def shown_images(figure: Figure) -> list[int]:
    return [int(np.asarray(axes.images[0].get_array()).flat[0]) for axes in figure.axes if axes.images]


def test_the_most_uncertain_have_the_largest_p_values() -> None:
    found = prediction(0)
    rows = most_uncertain(found, 5)
    rest = sorted(set(range(12)) - set(rows))
    assert found.p_value[rows].min() > found.p_value[rest].max()
    assert found.p_value[rows].tolist() == sorted(found.p_value[rows].tolist(), reverse=True)
    assert sorted(most_uncertain(found, 100)) == list(range(12))


def test_each_figure_shows_the_images_of_its_method() -> None:
    predictions = {"concrete": prediction(0), "contextual-bernoulli": prediction(1)}
    for method, each in predictions.items():
        assert shown_images(draw(predictions, method, 4)) == most_uncertain(each, 4)
    assert most_uncertain(predictions["concrete"], 4) != most_uncertain(predictions["contextual-bernoulli"], 4)


def test_titles_have_truth_answer_and_p_value() -> None:
    predictions = {"concrete": prediction(0), "mc-gaussian": prediction(1)}
    figure = draw(predictions, "concrete", 3)
    row = most_uncertain(predictions["concrete"], 1)[0]
    picture, *boxes = figure.axes[:3]
    assert picture.get_title() == f"truth: {CLASSES[row % 3]}"
    for axes, (name, each) in zip(boxes, predictions.items(), strict=True):
        answer, p_value = CLASSES[int(each.label[row])], each.p_value[row].item()
        verdict = "certain" if p_value < 0.05 else "not certain"
        title = {"concrete": "Concrete", "mc-gaussian": "MC Gaussian"}[name]
        said = f"= {p_value:.2g}" if p_value >= 0.001 else "< 0.001"
        assert axes.get_title() == f"{title}: {answer}\np {said}, {verdict}"
        bold = [text.get_text() for text in axes.get_xticklabels() if text.get_fontweight() == "bold"]
        assert bold == [CLASSES[row % 3]]


def test_boxes_are_of_the_samples() -> None:
    found = prediction(0)
    figure = draw({"concrete": found}, "concrete", 1)
    black = [line for line in figure.axes[1].lines if line.get_color() == "black"]
    medians = [line.get_ydata()[0] for line in black if line.get_linestyle() == "-"]  # outliers have no line
    np.testing.assert_allclose(medians, found.samples[:, most_uncertain(found, 1)[0]].quantile(0.5, 0))


def test_noisy_images_stand_beside_the_clean_ones() -> None:
    found = prediction(0)
    noisy = torch.arange(12.0)[:, None, None] * torch.ones(12, 4, 4) + 100
    rows = most_uncertain(found, 2)
    assert shown_images(draw({"concrete": found}, "concrete", 2, noisy=noisy)) == [
        *(rows[0], rows[0] + 100),
        *(rows[1], rows[1] + 100),
    ]


def test_of_many_classes_the_likely_ones_and_the_true_one_are_shown() -> None:
    mean = torch.arange(40.0)
    assert shown_classes(mean, truth=38) == [39, 38, 37, 36, 35, 34]
    assert shown_classes(mean, truth=2) == [39, 38, 37, 36, 35, 2]
    found = prediction(0, images=2, classes=40)
    names = [f"a rather long name {index}" for index in range(40)]
    figure = examples(torch.rand(2, 3, 8, 8), torch.tensor([7, 8]), names, {"concrete": found}, [1])
    ticks = [text.get_text() for text in figure.axes[1].get_xticklabels()]
    assert len(ticks) == 6
    assert all(len(text) <= 14 for text in ticks)


def test_colours_are_shown_as_they_are_and_noisy_ones_brought_into_range() -> None:
    images = torch.rand(2, 3, 8, 8)
    images[1] = 5 * images[1] - 2
    figure = examples(images, torch.tensor([0, 1]), CLASSES, {"concrete": prediction(0, images=2)}, [0, 1])
    as_is, scaled = (np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images)
    np.testing.assert_array_equal(as_is, images[0].permute(1, 2, 0).numpy())
    assert 0 <= scaled.min() < scaled.max() <= 1


def test_nothing_is_cut_or_covered() -> None:
    """Titles of neighbouring panels do not touch, and all text is inside the plot."""
    figure = draw(
        {"contextual-bernoulli": prediction(0), "contextual-gaussian": prediction(1)}, "contextual-gaussian", 3
    )
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    titles = [axes.title.get_window_extent(renderer) for axes in figure.axes]
    assert not any(one.overlaps(other) for index, one in enumerate(titles) for other in titles[:index])
    box = figure.get_tightbbox(renderer)
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= figure.get_size_inches()[0]
    assert box.y1 <= figure.get_size_inches()[1]
