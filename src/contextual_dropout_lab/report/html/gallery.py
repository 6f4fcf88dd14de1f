"""The gallery: the most uncertain, most certain and wrongly certain examples of every method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from contextual_dropout_lab.report.html.examples import GalleryExamples
from contextual_dropout_lab.report.html.image_sheet import COLUMNS, sheet, small
from contextual_dropout_lab.report.html.plot_values import rounded, shade
from contextual_dropout_lab.report.html.prediction_plots import CERTAIN
from contextual_dropout_lab.report.html.predictions import GalleryPredictions
from contextual_dropout_lab.report.method_names import CONTEXTUAL
from contextual_dropout_lab.report.plots.panels import class_names, shown_classes

__all__ = ["KINDS", "chosen", "gallery"]

#: The reasons for which an example is shown.
KINDS = {"uncertain": "Most uncertain", "certain": "Most certain", "wrong": "Wrongly certain"}
#: Examples of a kind and method: the first of all, and as many more as give every class some.
FIRST, OF_CLASSES = 12, 40
#: Cards of a gallery: where there are many methods, each has fewer.
CARDS = 2_500
#: An answer is right if its accuracy is at least this: min(n / 3, 1) is, if two people gave it.
RIGHT = 0.5
_QUARTERS = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)


def gallery(
    kept: Mapping[str, GalleryPredictions], methods: Mapping[str, str], shown: GalleryExamples
) -> dict[str, Any]:
    """Cards of the examples of every method, as plain values.

    Args:
        kept: predictions with p-values, by method.
        methods: their names in print.
        shown: the examples that they predicted.
    """
    share = min(1.0, CARDS / (len(kept) * len(KINDS) * (FIRST + OF_CLASSES)))
    sizes = max(int(share * FIRST), 1), int(share * OF_CLASSES) // len(shown.classes)
    picked = [_chosen(predicted, shown, *sizes) for predicted in kept.values()]
    rows = sorted({int(shown.rows[example]) for found in picked for example in found})
    tiles = {row: tile for tile, row in enumerate(rows)}
    cards = [
        {"tile": tiles[int(shown.rows[card["example"]])], "method": index, **card}
        for index, (predicted, found) in enumerate(zip(kept.values(), picked, strict=True))
        for card in _cards(predicted, found, shown)
    ]
    images = small(shown.images[rows])
    return {
        "classes": class_names(shown.classes),
        "methods": [{"label": methods[method], "colour": shade(method)} for method in kept],
        "ours": next((place for place, method in enumerate(kept) if method in CONTEXTUAL), None),
        "threshold": CERTAIN,
        "columns": COLUMNS,
        "size": list(images.shape[-2:]),
        "images": sheet(images),
        "noisy": None if shown.noisy is None else sheet(small(shown.noisy[rows])),
        "cards": cards,
    }


def _chosen(predicted: GalleryPredictions, shown: GalleryExamples, first: int, per_class: int) -> dict[int, list[str]]:
    prediction, right = predicted.prediction, predicted.correct >= RIGHT
    return chosen(prediction.p_value, prediction.confidence, right, shown.truths, first, per_class)


def chosen(
    p_value: Tensor, confidence: Tensor, right: Tensor, truths: Tensor, first: int, per_class: int
) -> dict[int, list[str]]:
    """Choose the examples to show, with the reason: by p-value, by confidence where p-values are equal.

    Args:
        p_value: (N,).
        confidence: (N,).
        right: (N,) bool.
        truths: (N,).
        first: examples of a kind.
        per_class: at least this many of every class.

    Example:
        >>> right, confidence = torch.tensor([True, False]), torch.tensor([0.4, 0.8])
        >>> chosen(torch.tensor([0.9, 0.01]), confidence, right, torch.tensor([0, 1]), first=1, per_class=0)
        {0: ['uncertain'], 1: ['certain', 'wrong']}
    """
    surest = confidence.argsort(stable=True, descending=True)
    rising = surest[p_value[surest].argsort(stable=True)]
    wrong = rising[(~right & (p_value < CERTAIN))[rising]]
    found: dict[int, list[str]] = {}
    for kind, order in {"uncertain": rising.flip(0), "certain": rising, "wrong": wrong}.items():
        for example in _first(order.tolist(), truths.tolist(), first, per_class):
            found.setdefault(example, []).append(kind)
    return found


def _first(order: list[int], truths: list[int], first: int, per_class: int) -> list[int]:
    """The first of all, and the first of every class."""
    taken: list[int] = []
    counts: dict[int, int] = {}
    for place, example in enumerate(order):
        count = counts.get(truths[example], 0)
        if place < first or count < per_class:
            taken.append(example)
            counts[truths[example]] = count + 1
    return taken


def _cards(predicted: GalleryPredictions, found: dict[int, list[str]], shown: GalleryExamples) -> list[dict[str, Any]]:
    """The examples of a method; a box is a class and five numbers in thousandths, the lowest sample to the highest."""
    prediction = predicted.prediction
    answers, confidences, p_values = prediction.label, prediction.confidence, prediction.p_value
    cards = []
    for example, kinds in found.items():
        truth = int(shown.truths[example])
        box = (1000 * prediction.samples[:, example].quantile(_QUARTERS, 0)).round().int()  # (5, C)
        classes = shown_classes(prediction.mean[example], truth if truth >= 0 else int(answers[example]))
        cards.append(
            {
                "example": example,
                "kinds": kinds,
                "truth": truth,
                "answer": int(answers[example]),
                "right": bool(predicted.correct[example] >= RIGHT),
                "p": rounded([p_values[example].item()], 6)[0],
                "certain": bool(p_values[example] < CERTAIN),
                "confidence": rounded([confidences[example].item()], 3)[0],
                "boxes": [[index, *box[:, index].tolist()] for index in classes],
                **({"text": shown.texts[example]} if shown.texts else {}),
            }
        )
    return cards
