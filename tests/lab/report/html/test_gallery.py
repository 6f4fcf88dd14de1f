"""The gallery shows the examples that it says it shows, with the samples' quantiles; and it stays small."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from contextual_dropout.prediction.classification import MultilabelPrediction, Prediction
from contextual_dropout_lab.report.html import gallery as module
from contextual_dropout_lab.report.html.examples import GalleryExamples
from contextual_dropout_lab.report.html.gallery import chosen, gallery
from contextual_dropout_lab.report.html.image_sheet import COLUMNS, LARGEST, LEVELS, sheet, small
from contextual_dropout_lab.report.html.predictions import GalleryPredictions
from contextual_dropout_lab.report.method_names import LABELS as LABELS_OF
from tests.lab.report.html.runs import predicted

LABELS = torch.arange(300) % 10
CLASSES = [str(digit) for digit in range(10)]


def shown(**changes: Any) -> GalleryExamples:
    """Image n is n / 300 bright all over."""
    images = (torch.arange(300) / 300)[:, None, None] * torch.ones(300, 4, 3)
    return GalleryExamples(
        **{"images": images, "rows": torch.arange(300), "truths": LABELS, "classes": CLASSES} | changes
    )


def kept(seed: int = 0) -> GalleryPredictions:
    prediction = predicted(LABELS, seed)
    return GalleryPredictions(seed, prediction, (prediction.label == LABELS).double())


def pixels(address: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def tile(address: str, number: int, height: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    top, left = number // COLUMNS * height, number % COLUMNS * width
    return pixels(address)[top : top + height, left : left + width]


def test_the_first_of_every_kind() -> None:
    p_value = torch.tensor([0.9, 0.001, 0.04, 0.02, 0.5, 0.0])
    right = torch.tensor([True, True, False, False, False, True])
    found = chosen(p_value, torch.full((6,), 0.7), right, torch.zeros(6, dtype=torch.long), first=2, per_class=0)
    kinds = {kind: [row for row in found if kind in found[row]] for kind in ("uncertain", "certain", "wrong")}
    assert kinds == {"uncertain": [0, 4], "certain": [5, 1], "wrong": [3, 2]}


def test_every_class_has_its_own() -> None:
    each = kept()
    found = chosen(each.prediction.p_value, each.prediction.confidence, each.correct > 0, LABELS, first=1, per_class=3)
    for kind, sign in (("uncertain", -1), ("certain", 1)):
        for digit in range(10):
            rows = (digit == LABELS).nonzero().flatten()
            best = rows[(sign * each.prediction.p_value[rows]).argsort()[:3]].tolist()
            assert set(best) <= {row for row, kinds in found.items() if kind in kinds}
    assert sum("certain" in kinds for kinds in found.values()) == 30


def test_among_equal_p_values_confidence_decides() -> None:
    confidence = torch.tensor([0.6, 0.9, 0.7])
    found = chosen(torch.zeros(3), confidence, torch.zeros(3, dtype=torch.bool), torch.zeros(3).long(), 1, 0)
    assert found == {0: ["uncertain"], 1: ["certain", "wrong"]}


def test_cards_say_what_was_predicted() -> None:
    each = kept()
    values = gallery({"mc-gaussian": kept(1), "concrete": each}, LABELS_OF, shown())
    cards = [card for card in values["cards"] if card["method"] == 1]
    assert values["methods"][1]["label"] == "Concrete"
    assert {kind for card in cards for kind in card["kinds"]} == set(module.KINDS)
    for card in cards:
        row, prediction = card["example"], each.prediction
        assert card["answer"] == int(prediction.label[row])
        assert card["truth"] == row % 10
        assert card["right"] == (card["answer"] == card["truth"])
        assert card["p"] == pytest.approx(prediction.p_value[row].item(), rel=1e-2)
        assert card["confidence"] == pytest.approx(prediction.confidence[row].item(), rel=1e-2)
        assert card["certain"] == bool(prediction.certain(0.05)[row])
        assert ("wrong" in card["kinds"]) <= (not card["right"] and card["certain"])
        boxes = np.array(card["boxes"])
        expected = np.quantile(prediction.samples[:, row].numpy(), [0, 0.25, 0.5, 0.75, 1], axis=0).T
        np.testing.assert_allclose(boxes[:, 1:] / 1000, expected, atol=6e-4)


def test_what_is_hardly_certain_is_called_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded to two digits it would be 0.05, which is not below 0.05."""
    monkeypatch.setattr(
        Prediction, "p_value", property(lambda self: torch.full(self.label.shape, 0.04997, dtype=torch.float64))
    )
    cards = gallery({"concrete": kept()}, LABELS_OF, shown())["cards"]
    assert {(card["p"], card["certain"]) for card in cards} == {(0.04997, True)}
    assert any("wrong" in card["kinds"] for card in cards)


def test_cards_have_their_own_images() -> None:
    noisy = -2 + 5 * torch.rand(300, 4, 3)
    values = gallery({"concrete": kept()}, LABELS_OF, shown(noisy=noisy))
    nearest = 0.5 / (LEVELS - 1) + 1 / 255  # half a level, and what bytes leave of it
    for card in values["cards"][::7]:
        row = card["example"]
        clean = tile(values["images"], card["tile"], 4, 3)
        np.testing.assert_allclose(clean / 255, row / 300, atol=nearest)
        low, high = min(noisy[row].min().item(), 0), max(noisy[row].max().item(), 1)
        scaled = (noisy[row].numpy() - low) / (high - low)
        np.testing.assert_allclose(tile(values["noisy"], card["tile"], 4, 3) / 255, scaled, atol=nearest)


def test_it_does_not_grow_with_the_methods() -> None:
    sizes = []
    for count in (3, 40):
        many = {f"m{seed}": kept(seed) for seed in range(count)}
        sizes.append(len(gallery(many, {method: method for method in many}, shown())["cards"]))
    assert sizes[0] > 100
    assert sizes[1] <= module.CARDS + 3 * 40


def test_questions_have_text_and_may_share_an_image() -> None:
    """Soft answers: half of the people make an answer right, and none of the true ones may be a class."""
    samples = predicted(LABELS[:4], 0, spread=0.2).samples
    prediction = MultilabelPrediction(samples)
    each = GalleryPredictions(0, prediction, torch.tensor([1.0, 0.5, 0.3, 0.0]).double())
    asked = ["what is it?", "is it?", "why?", "who?"]
    values = gallery(
        {"concrete": each},
        LABELS_OF,
        shown(
            images=torch.rand(2, 3, 8, 8),
            rows=torch.tensor([0, 1, 1, 0]),
            truths=torch.tensor([2, 3, 4, -1]),
            texts=asked,
        ),
    )
    cards = {card["example"]: card for card in values["cards"]}
    assert [cards[row]["text"] for row in range(4)] == asked
    assert [cards[row]["right"] for row in range(4)] == [True, True, False, False]
    assert [cards[row]["tile"] for row in range(4)] == [0, 1, 1, 0]
    assert cards[3]["truth"] == -1
    assert values["size"] == [8, 8]
    assert values["images"].startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 1, 4, 3)])
def test_grey_images_are_tiles(shape: tuple[int, ...]) -> None:
    images = torch.rand(shape)
    found = pixels(sheet(images))
    assert found.shape == (4, 3 * COLUMNS)
    np.testing.assert_allclose(found[:, 3:6] / 255, images.reshape(5, 4, 3)[1], atol=0.5 / (LEVELS - 1) + 1 / 255)


def test_colours_stay_what_they_are() -> None:
    images = torch.zeros(40, 3, 8, 8)
    images[33, 0] = 1  # red, the second of the second line
    red, green, blue = pixels(sheet(images))[12, 12]
    assert red > 200
    assert max(green, blue) < 60


@pytest.mark.parametrize("size", [(240, 320), (97, 20), (64, 64)])
def test_large_images_are_made_small(size: tuple[int, int]) -> None:
    images: Tensor = torch.rand(2, 3, *size)
    found = small(images)
    assert max(found.shape[-2:]) <= LARGEST
    assert found.mean().item() == pytest.approx(images.mean().item(), abs=0.02)
