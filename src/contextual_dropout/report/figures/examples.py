"""Single examples: the image, and what each method's sampled masks make of it."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor

from contextual_dropout.prediction import Prediction
from contextual_dropout.report.figures.style import WIDTH, colour
from contextual_dropout.report.methods import label

__all__ = ["examples", "telling_examples"]


def examples(
    images: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    predictions: dict[str, Prediction],
    rows: Sequence[int],
    threshold: float = 0.05,
) -> Figure:
    """A row for each example: the image, then box plots of the class probabilities over sampled masks by method.

    Args:
        images: (N, H, W), any range.
        labels: (N,).
        classes: names of the classes.
        predictions: of all N examples, by method.
        rows: which examples.
        threshold: a p-value below it is called certain.
    """
    figure = Figure(figsize=(WIDTH, 0.25 + 1.25 * len(rows)), layout="constrained")
    widths = [1.0, *([2.2] * len(predictions))]
    with matplotlib.rc_context({"font.size": 7}):
        grid = figure.subplots(len(rows), len(widths), squeeze=False, width_ratios=widths)
        for line, row in zip(grid, rows, strict=True):
            line[0].imshow(images[row].numpy(), cmap="gray", interpolation="nearest")
            line[0].set_axis_off()
            line[0].set_title(f"truth: {classes[int(labels[row])]}", fontsize=8)
            for axes, (method, prediction) in zip(line[1:], predictions.items(), strict=True):
                _boxes(axes, method, prediction, row, classes, threshold)
    return figure


def telling_examples(prediction: Prediction, labels: Tensor, count: int = 4) -> list[int]:
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


def _boxes(axes: Axes, method: str, prediction: Prediction, row: int, classes: Sequence[str], threshold: float) -> None:
    samples = prediction.samples[:, row].numpy()  # (K, C)
    ink = {"color": colour(method)}
    axes.boxplot(
        samples,
        positions=range(len(classes)),
        widths=0.6,
        patch_artist=True,
        boxprops={"facecolor": to_rgba(colour(method), 0.3), **ink},
        whiskerprops=ink,
        capprops=ink,
        medianprops={"color": "black"},
        flierprops={"marker": ".", "markersize": 2, "markeredgecolor": colour(method)},
    )
    p_value = float(prediction.p_value[row])
    verdict = "certain" if p_value < threshold else "not certain"
    axes.set_title(
        f"{label(method)}: {classes[int(prediction.label[row])]}, p = {p_value:.2g}, {verdict}", fontsize=7.5
    )
    axes.set_ylim(-0.04, 1.04)
    axes.set_xticks(range(len(classes)), classes)
    axes.spines[["top", "right"]].set_visible(False)
