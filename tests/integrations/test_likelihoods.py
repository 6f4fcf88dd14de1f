"""One number an example, whichever axis has the classes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from contextual_dropout.integrations.likelihoods import (
    IGNORED,
    binary_log_likelihood,
    class_axis,
    class_log_likelihood,
    multilabel_log_likelihood,
)

LABELS = torch.randint(4, (2, 5, 6), generator=torch.Generator().manual_seed(0))


def by_hand(logits: Tensor, labels: Tensor) -> Tensor:
    """Position by position; logits (B, ..., C)."""
    total = torch.zeros(len(logits))
    for index in torch.cartesian_prod(*(torch.arange(size) for size in labels.shape)).reshape(-1, labels.ndim):
        place = tuple(index.tolist())
        if labels[place] != IGNORED:
            total[place[0]] += logits[place].log_softmax(-1)[labels[place]]
    return total


@pytest.mark.parametrize("labels", [LABELS, LABELS[..., 0], LABELS[:, 0, 0]], ids=["image", "tokens", "example"])
@pytest.mark.parametrize("class_dim", [1, -1, None])
def test_classes_in_either_axis(labels: Tensor, class_dim: int | None) -> None:
    labels = labels.clone()
    if labels.ndim > 1:
        labels[1, 2] = IGNORED
    last = torch.randn(*labels.shape, 4)
    expected = by_hand(last, labels)
    for axis in (1, -1):
        if class_dim is None or class_dim == axis:
            found = class_log_likelihood(last.movedim(-1, axis), labels, class_dim)
            torch.testing.assert_close(found, expected)


def test_sizes_that_tell_nothing_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"\(2, 5, 5\) may have their classes in the second or in the last axis: give class_dim"
    ):
        class_axis(torch.zeros(2, 5, 5), torch.zeros(2, 5))
    assert class_axis(torch.zeros(2, 5, 5), torch.zeros(2, 5), 1) == 1
    assert class_axis(torch.zeros(2, 2), torch.zeros(2)) == -1  # one axis is both the second and the last


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ((2, 3), torch.zeros(2, 3).long(), r"logits of shape \(2, 3\) need labels \(2,\), got \(2, 3\)"),
        ((2, 3, 8, 8), torch.zeros(2, 4, 4).long(), r"need labels \(2, 3, 8\) or \(2, 8, 8\), got \(2, 4, 4\)"),
        ((2,), torch.zeros(2).long(), "have no classes: give task='binary'"),
        ((2, 3), torch.zeros(2), "labels are torch.float32: expected class indices"),
    ],
)
def test_labels_that_do_not_fit(logits: tuple[int, ...], labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_log_likelihood(torch.zeros(logits), labels, None)


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3, 1), (3,)), ((3, 1, 2, 4), (3, 2, 4)), ((3, 2), (3, 2, 1))])
def test_binary(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    logits, labels = torch.randn(shapes[0]), torch.randint(2, shapes[1])
    labels.view(-1)[0] = IGNORED
    right = torch.where(labels == 1, logits.sigmoid().reshape(labels.shape), 1 - logits.sigmoid().reshape(labels.shape))
    expected = (right.log() * (labels != IGNORED)).reshape(3, -1).sum(1)
    torch.testing.assert_close(binary_log_likelihood(logits, labels), expected)
    with pytest.raises(ValueError, match="need one label each, 0 or 1"):
        binary_log_likelihood(torch.zeros(3, 2), torch.zeros(3))


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 4, 4)])
def test_multilabel(shape: tuple[int, ...]) -> None:
    logits, labels = torch.randn(shape), torch.rand(shape)
    expected = (labels * logits.sigmoid().log() + (1 - labels) * (1 - logits.sigmoid()).log()).flatten(1).sum(1)
    torch.testing.assert_close(multilabel_log_likelihood(logits, labels), expected)
    with pytest.raises(ValueError, match="need labels of the same shape"):
        multilabel_log_likelihood(logits, labels[:, 0])
