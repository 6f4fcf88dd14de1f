"""The paper's panels of visual question answering: image, question, human answers, and what each method says."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.data.vqa import normalized
from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.plots.panels import picture
from contextual_dropout_lab.report.plots.style import WIDTH
from contextual_dropout_lab.report.table import p_in_words

__all__ = ["AskedQuestions", "questions", "verdict"]

#: Inches of an example's height at least, and how many stand side by side.
HEIGHT, ACROSS = 1.9, 2
#: Inches of a line's height, and characters that it may have.
LINE, ACROSS_LINE = 0.15, 50
#: Text, colour, weight.
Line = tuple[str, str, str]
#: The paper's rule: (accurate, certain) -> a word, where people agree on an answer, and where they do not.
CLEAR = {(True, True): "good", (True, False): "average", (False, False): "average", (False, True): "bad"}
UNCLEAR = {**CLEAR, (True, True): "average", (True, False): "good"}
COLOURS = {"good": "#009E73", "average": "#B8860B", "bad": "#D55E00"}


@dataclass(frozen=True)
class AskedQuestions:
    """Questions on images.

    Attributes:
        images: (N, 3, H, W), from 0 to 1.
        questions: N texts.
        humans: the answers of people to each.
        answers: what the classes mean.
        accuracy: by method, (N,) in [0, 1], of the method's answers.
    """

    images: Tensor
    questions: Sequence[str]
    humans: Sequence[Sequence[str]]
    answers: Sequence[str]
    accuracy: dict[str, Tensor]


def verdict(accuracy: float, certain: bool, humans: Sequence[str]) -> str:
    """Good, average or bad, where the paper judged by hand.

    An answer is accurate if its accuracy is at least 0.5: of min(n / 3, 1), if two people of ten gave it. A question is
    clear if at least half of the people gave one and the same answer, normalised.

    Args:
        accuracy: of the method's answer, in [0, 1].
        certain: whether the method is.
        humans: the answers of the people.

    Example:
        >>> verdict(1.0, True, ["red"]), verdict(1.0, True, ["red", "pink", "rose"])
        ('good', 'average')
        >>> verdict(0.3, False, ["red"]), verdict(0.0, True, ["red"])
        ('average', 'bad')
        >>> verdict(1.0, True, ["2", "two", "Two.", "three"])
        'good'
    """
    clear = 2 * max(Counter(normalized(humans)).values()) >= len(humans)
    return (CLEAR if clear else UNCLEAR)[accuracy >= 0.5, certain]


def questions(
    asked: AskedQuestions,
    predictions: dict[str, Classification],
    rows: Sequence[int],
    title: str,
    threshold: float = 0.05,
) -> Figure:
    """Draw for each question its image, and next to it the text, human answers, and methods' answers with p-values.

    Args:
        asked: all N questions.
        predictions: of all N, by method.
        rows: which to show.
        title: above everything.
        threshold: a p-value below it is called certain.
    """
    texts = [_text(asked, predictions, row, threshold) for row in rows]
    most = max(map(len, texts), default=0)
    high = -(-len(rows) // ACROSS)
    figure = Figure(figsize=(1.3 * WIDTH, 0.4 + max(HEIGHT, LINE * most) * high), layout="constrained")
    with matplotlib.rc_context({"font.size": 7}):
        grid = figure.subplots(high, 2 * ACROSS, squeeze=False, width_ratios=[1.0, 1.9] * ACROSS)
        panels = grid.reshape(-1, 2)
        for (left, right), row, text in zip(panels, rows, texts, strict=False):
            picture(left, asked.images[row], "")
            _write(right, text, most)
        for axes in panels[len(rows) :].flat:
            axes.set_axis_off()
    figure.suptitle(title, fontsize=8.5)
    return figure


def _text(asked: AskedQuestions, predictions: dict[str, Classification], row: int, threshold: float) -> list[Line]:
    """The question, what people say, and what every method does."""
    humans = asked.humans[row]
    people = ", ".join(f"{answer} ({count})" for answer, count in Counter(humans).most_common(4))
    people = f"people: {people}" if len(humans) > 1 else f"truth: {humans[0]}"
    lines: list[Line] = [(line, "black", "bold") for line in textwrap.wrap(asked.questions[row], 38)[:2]]
    lines += [(line, "#555555", "normal") for line in textwrap.wrap(people, ACROSS_LINE)[:2]]
    for method, prediction in predictions.items():
        p_value = float(prediction.p_value[row])
        word = verdict(float(asked.accuracy[method][row]), p_value < threshold, humans)
        answer = asked.answers[int(prediction.label[row])]
        said = f"{label(method)}: {answer}, p {p_in_words(p_value)} ({word})"
        wrapped = textwrap.wrap(said, ACROSS_LINE, subsequent_indent="    ")
        lines += [(line, COLOURS[word], "normal") for line in wrapped]
    return lines


def _write(axes: Axes, lines: Sequence[Line], most: int) -> None:
    """Draw lines from the top, with room for a given number."""
    axes.set_axis_off()
    for number, (text, colour, weight) in enumerate(lines):
        height = 0.98 - number / max(9, most)
        written = axes.text(0, height, text, color=colour, fontweight=weight, va="top", transform=axes.transAxes)
        written.set_in_layout(False)  # else long lines would leave no room for the images
