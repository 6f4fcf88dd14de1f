from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from contextual_dropout_lab.data.vqa import patches


def test_patches_are_those_of_unfold() -> None:
    images = torch.rand(2, 3, 12, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(patches(images, 4), F.unfold(images, 4, stride=4).transpose(1, 2))
    assert patches(images, 4).shape == (2, 6, 48)


def test_bytes_are_scaled_and_types_kept() -> None:
    images = torch.tensor([0, 51, 255, 102], dtype=torch.uint8).reshape(1, 1, 2, 2)
    torch.testing.assert_close(patches(images, 1), torch.tensor([0.0, 0.2, 1.0, 0.4]).reshape(1, 4, 1))
    assert patches(torch.rand(1, 3, 4, 4).double(), 2).dtype == torch.float64


@pytest.mark.parametrize(
    ("images", "size", "message"),
    [
        (torch.rand(3, 4, 4), 2, r"expected \(N, C, H, W\)"),
        (torch.zeros(1, 3, 4, 4, dtype=torch.int64), 2, "of torch.int64: expected"),
        (torch.rand(1, 3, 4, 6), 4, "size is 4 for images of 4 by 6: expected a divisor"),
        (torch.rand(1, 3, 4, 4), 0, "size is 0"),
    ],
)
def test_what_cannot_be_cut_is_named(images: torch.Tensor, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        patches(images, size)
