"""The paper's box plots (Appendix): the images that a method is most uncertain about, as all methods see them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.plots.example_panels import examples

__all__ = ["most_uncertain", "uncertain"]


def uncertain(
    images: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    predictions: dict[str, Classification],
    method: str,
    count: int = 8,
    noisy: Tensor | None = None,
) -> Figure:
    """Image, true label and box plots of the class probabilities for the most uncertain images of ``method``.

    Args:
        images: (N, H, W) or (N, C, H, W), any range; of colour images that of colours is 0 to 1.
        labels: (N,).
        classes: names of the classes.
        predictions: of all N images, by method: ``method`` and those to compare it with.
        method: whose images.
        count: how many, or all N if there are fewer.
        noisy: the images as the networks saw them, to be shown beside ``images``.
    """
    prediction = predictions[method]
    figure = examples(images, labels, classes, predictions, most_uncertain(prediction, count), noisy=noisy)
    figure.suptitle(
        f"{label(method)}: the most uncertain of {len(prediction):,} images, by p-value; "
        f"class probabilities over {len(prediction.samples)} samples",
        fontsize=8.5,
    )
    return figure


def most_uncertain(prediction: Classification, count: int) -> list[int]:
    """The examples of the largest p-values, the most uncertain first; the earlier one first where they are equal.

    Example:
        >>> import torch
        >>> top = torch.tensor([[0.9, 0.6], [0.8, 0.4]])  # (K, B)
        >>> from contextual_dropout.prediction.classification import Prediction
        >>> most_uncertain(Prediction(torch.stack([top, 1 - top], -1)), count=1)
        [1]
    """
    rows: list[int] = prediction.p_value.argsort(descending=True, stable=True)[:count].tolist()
    return rows
