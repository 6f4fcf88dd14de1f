from __future__ import annotations

import dataclasses
import hashlib

import pytest
import torch

from contextual_dropout_lab.data import DataError, LabelledImages


def some(size: int = 6) -> LabelledImages:
    images = torch.arange(size * 6, dtype=torch.uint8).reshape(size, 2, 3)
    return LabelledImages(images, torch.arange(size) % 3, ("a", "b", "c"))


def test_inputs_are_rows_from_0_to_1() -> None:
    images = torch.tensor([[[0, 255], [51, 102]]], dtype=torch.uint8)
    inputs = LabelledImages(images, torch.tensor([0]), ("a",)).inputs()
    assert inputs.dtype == torch.float32
    assert torch.equal(inputs, torch.tensor([[0.0, 1.0, 0.2, 0.4]]))


def test_pixels_have_channels_in_grey_and_in_colour() -> None:
    assert some().pixels().shape == (6, 1, 2, 3)
    assert torch.equal(some().pixels().flatten(1), some().inputs())
    coloured = LabelledImages(torch.arange(24, dtype=torch.uint8).reshape(2, 3, 2, 2), torch.tensor([0, 1]), ("a", "b"))
    assert coloured.pixels().dtype == torch.float32
    assert torch.equal(coloured.pixels() * 255, coloured.images.float())
    assert coloured.inputs().shape == (2, 12)
    assert coloured.subset([1]).pixels().shape == (1, 3, 2, 2)


def test_the_digest_is_that_of_the_images_then_the_labels() -> None:
    data = some()
    content = bytes(range(36)) + b"".join(label.to_bytes(8, "little") for label in (0, 1, 2, 0, 1, 2))
    assert data.sha256 == hashlib.sha256(content).hexdigest()


def test_the_digest_tells_orders_labels_and_pixels_apart() -> None:
    data = some()
    pixels = data.images.clone()
    pixels[0, 0, 0] += 1
    others = [
        data.subset([1, 0, 2, 3, 4, 5]),
        data.subset([0, 1, 2]),
        LabelledImages(data.images, data.labels.flip(0), data.classes),
        LabelledImages(pixels, data.labels, data.classes),
    ]
    assert len({data.sha256, *(other.sha256 for other in others)}) == 5
    assert data.subset(range(6)).sha256 == data.sha256


def test_the_digest_does_not_depend_on_the_layout_in_memory() -> None:
    data = some()
    transposed = data.images.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert LabelledImages(transposed, data.labels, data.classes).sha256 == data.sha256


@pytest.mark.parametrize("indices", [[4, 0], torch.tensor([4, 0]), [], torch.tensor([], dtype=torch.int64), range(2)])
def test_a_subset_has_the_examples_in_the_order_asked_for(indices: list[int]) -> None:
    data, chosen = some(), [int(i) for i in indices]
    subset = data.subset(indices)
    assert len(subset) == len(chosen)
    assert subset.labels.tolist() == [i % 3 for i in chosen]
    assert subset.images.flatten(1).tolist() == [list(range(6 * i, 6 * i + 6)) for i in chosen]


def test_a_subset_is_a_copy() -> None:
    data = some()
    data.subset(range(6)).images.zero_()
    assert data.images.any()


def test_a_data_set_cannot_be_reassigned() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        some().labels = torch.zeros(6)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 4, dtype=torch.uint8), torch.zeros(2).long(), r"images are \(2, 4\) of torch.uint8: expected"),
        (torch.zeros(2, 4, 4, 3).byte(), torch.zeros(2).long(), r"images are \(2, 4, 4, 3\) of torch.uint8: expected"),
        (torch.zeros(2, 4, 4), torch.zeros(2).long(), r"images are \(2, 4, 4\) of torch.float32: expected"),
        (torch.zeros(2, 4, 4).byte(), torch.zeros(3).long(), r"labels are \(3,\) of torch.int64: expected \(2,\)"),
        (torch.zeros(2, 4, 4).byte(), torch.zeros(2).byte(), r"labels are \(2,\) of torch.uint8: expected"),
        (
            torch.zeros(2, 4, 4).byte(),
            torch.tensor([0, 3]),
            r"label 1 is 3 \(1 of 2 .*\): expected 0 to 1",
        ),
        (torch.zeros(2, 4, 4).byte(), torch.tensor([-1, 0]), "label 0 is -1"),
    ],
)
def test_what_does_not_fit_is_refused(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        LabelledImages(images, labels, ("a", "b"))
