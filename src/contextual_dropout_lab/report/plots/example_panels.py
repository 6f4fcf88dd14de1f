"""Single examples: the image, and what each method's sampled masks make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from torch import Tensor

from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.report.plots.panels import box_plots, class_names, label_height, picture
from contextual_dropout_lab.report.plots.style import WIDTH

__all__ = ["examples", "telling_examples"]

#: Inches of a panel: width of an image and of box plots, height of both.
IMAGE, BOXES, HEIGHT = 1.0, 2.2, 1.2


def examples(
    images: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    predictions: dict[str, Classification],
    rows: Sequence[int],
    threshold: float = 0.05,
    noisy: Tensor | None = None,
) -> Figure:
    """Draw for each example the image, then box plots of the class probabilities over sampled masks by method.

    An example has a line of its own; where there is one method only, two share a line.

    Args:
        images: (N, H, W) or (N, C, H, W), any range; of colour images that of colours is 0 to 1.
        labels: (N,).
        classes: names of the classes; of more than ten, the most probable ones are shown and the true one.
        predictions: of all N examples, by method.
        rows: which examples.
        threshold: a p-value below it is called certain.
        noisy: the images as the networks saw them, to be shown beside ``images``.
    """
    seen = [] if noisy is None else [noisy]
    names, widths = class_names(classes), [IMAGE] * (1 + len(seen)) + [BOXES] * len(predictions)
    across = 2 if len(predictions) == 1 else 1
    lines = math.ceil(len(rows) / across)
    size = (max(WIDTH, across * sum(widths)), 0.3 + (HEIGHT + label_height(classes)) * lines)
    figure = Figure(figsize=size, layout="constrained")
    with matplotlib.rc_context({"font.size": 7}):
        grid = figure.subplots(lines, across * len(widths), squeeze=False, width_ratios=widths * across)
        panels = grid.reshape(-1, len(widths))  # one line an example
        for line, row in zip(panels, rows, strict=False):
            truth = int(labels[row])
            picture(line[0], images[row], f"truth:{_break(names[truth])}{names[truth]}")
            for axes, image in zip(line[1:], seen, strict=False):
                picture(axes, image[row], "with noise")
            for axes, (method, prediction) in zip(line[1 + len(seen) :], predictions.items(), strict=True):
                box_plots(axes, method, prediction, row, classes, truth, threshold)
        for axes in panels[len(rows) :].flat:
            axes.set_axis_off()
    return figure


def telling_examples(prediction: Classification, labels: Tensor, count: int = 4) -> list[int]:
    """Examples worth a look: uncertain and wrong, certain and wrong if any, uncertain but right, certain and right."""
    right = prediction.label == labels
    p_value = prediction.p_value
    least_certain, most_certain = p_value.argsort(descending=True), p_value.argsort()
    kinds = [
        [row for row in least_certain.tolist() if not right[row]],
        [row for row in most_certain.tolist() if not right[row]],
        [row for row in least_certain.tolist() if right[row]],
        [row for row in most_certain.tolist() if right[row]],
    ]
    chosen = list(dict.fromkeys(kind[0] for kind in kinds if kind))
    return (chosen + [row for row in least_certain.tolist() if row not in chosen])[:count]


def _break(name: str) -> str:
    """Break a title between words that an image is too narrow for."""
    return " " if len(name) <= 8 else "\n"
