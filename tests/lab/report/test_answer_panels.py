"""Panels of questions: the paper's rule, and everything it needs on the plot."""

from __future__ import annotations

import itertools

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.data.vqa import answer_accuracy, capped
from contextual_dropout_lab.report.plots.answer_panels import COLOURS, AskedQuestions, questions, verdict

AGREED, SPLIT = ["red"] * 6 + ["pink"] * 4, ["red"] * 4 + ["pink"] * 3 + ["rose"] * 3


@pytest.mark.parametrize(
    ("humans", "words"),
    [(AGREED, ["good", "average", "average", "bad"]), (SPLIT, ["average", "good", "average", "bad"])],
)
def test_the_rule_of_the_paper(humans: list[str], words: list[str]) -> None:
    """Certain and accurate is best only where there is an answer to be certain of."""
    cases = [(1.0, True), (1.0, False), (0.0, False), (0.0, True)]
    assert [verdict(accuracy, certain, humans) for accuracy, certain in cases] == words


def test_spellings_of_one_answer_are_one() -> None:
    """Four of six people say two; as they wrote it, no answer has more than a third."""
    humans = ["2", "two", "Two.", "2", "three", "four"]
    assert verdict(1.0, True, humans) == "good"
    assert verdict(1.0, True, [*humans, "five", "six", "seven"]) == "average"


@pytest.mark.parametrize(("people", "word"), [(1, "bad"), (2, "good")])
def test_two_people_of_ten_make_an_answer_accurate(people: int, word: str) -> None:
    humans = ["red"] * 8 + ["pink"] * people + ["rose"] * (2 - people)
    assert verdict(answer_accuracy("pink", humans, capped), True, humans) == word


def panels(rows: list[int]) -> tuple[Figure, dict[str, Prediction], AskedQuestions]:
    generator = torch.Generator().manual_seed(0)
    predictions = {
        name: Prediction(torch.randn(20, 4, 3, generator=generator, dtype=torch.float64).softmax(-1))
        for name in ("mc-bernoulli", "contextual-bernoulli")
    }
    accuracy = {name: (each.label == 0).double() for name, each in predictions.items()}
    humans = [["red"], AGREED, SPLIT, ["blue"]]
    texts = ["what colour is it?", "is it red?", "how is it?", "where is the small red box that stands on a big one?"]
    asked = AskedQuestions(
        torch.rand(4, 3, 8, 8, generator=generator), texts, humans, ("red", "blue", "pink"), accuracy
    )
    return questions(asked, predictions, rows, "Title"), predictions, asked


def test_every_panel_has_question_people_answers_and_p_values() -> None:
    figure, predictions, asked = panels([2, 0, 3])
    texts = [list(axes.texts) for axes in figure.axes if axes.texts]
    assert len(texts) == 3
    assert sum(bool(axes.images) for axes in figure.axes) == 3
    shown = [text.get_text() for text in texts[0]]
    assert shown[:2] == ["how is it?", "people: red (4), pink (3), rose (3)"]
    for text, (method, prediction) in zip(texts[0][2:], predictions.items(), strict=True):
        p_value = prediction.p_value[2].item()
        word = verdict(asked.accuracy[method][2].item(), p_value < 0.05, asked.humans[2])
        answer = asked.answers[int(prediction.label[2])]
        name = {"mc-bernoulli": "MC dropout", "contextual-bernoulli": "Contextual Bernoulli"}[method]
        said = f"= {p_value:.2g}" if p_value >= 0.001 else "< 0.001"
        assert text.get_text() == f"{name}: {answer}, p {said} ({word})"
        assert text.get_color() == COLOURS[word]
    assert [text.get_text() for text in texts[1]][1] == "truth: red"
    assert len(texts[2]) == len(texts[1]) + 1  # a long question takes two lines


def test_nothing_is_cut_and_no_text_runs_into_an_image() -> None:
    """Panels with the methods of the experiment, whose names are long."""
    names = ("mc-bernoulli", "contextual-bernoulli-independent", "contextual-bernoulli-constant", "contextual-gaussian")
    predictions = {name: Prediction(torch.full((20, 4, 2), 0.5, dtype=torch.float64)) for name in names}
    accuracy = {name: torch.zeros(4) for name in names}
    asked = AskedQuestions(
        torch.rand(4, 3, 8, 8), ["what is it?"] * 4, [AGREED] * 4, ("rectangle", "triangle"), accuracy
    )
    figure = questions(asked, predictions, [0, 1, 2, 3], "Title")
    FigureCanvasAgg(figure).draw()
    images = [axes.get_window_extent() for axes in figure.axes if axes.images]
    texts = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
    assert all(image.width > 0.1 * figure.bbox.width for image in images)
    for text in texts:
        assert 0 <= text.x0 < text.x1 <= figure.bbox.width
        assert 0 <= text.y0 < text.y1 <= figure.bbox.height
        assert not any(text.overlaps(image) for image in images)
    heights = sorted((text.y0, text.y1) for text in texts if text.x0 < figure.bbox.width / 2)
    assert all(below[1] <= above[0] + 1 for below, above in itertools.pairwise(heights))
