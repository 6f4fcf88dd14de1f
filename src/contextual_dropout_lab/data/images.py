"""Labelled images in memory, grey or in colour."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError

__all__ = ["LabelledImages"]


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """N images of H times W pixels with one label each.

    Args:
        images: (N, H, W) uint8, 0 is black; in colour (N, 3, H, W), red, green and blue.
        labels: (N,) int64, indices of ``classes``.
        classes: the names of the classes.

    Attributes:
        sha256: over the bytes of the images, then of the labels (int64, little endian), as they were at construction.
            Identifies the data of a result, whatever files they came from.

    Example:
        >>> images = torch.tensor([[[0, 255]], [[51, 0]]], dtype=torch.uint8)  # two of 1 by 2 pixels
        >>> data = LabelledImages(images, torch.tensor([1, 0]), ("a", "b"))
        >>> len(data), data.inputs()
        (2, tensor([[0.0000, 1.0000], [0.2000, 0.0000]]))
        >>> data.pixels().shape
        torch.Size([2, 1, 1, 2])
        >>> data.subset([1]).labels
        tensor([0])
        >>> data.sha256[:8]
        '95f97a07'
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        _check(self.images, self.labels, self.classes)
        digest = hashlib.sha256(self.images.contiguous().cpu().numpy().data)
        digest.update(self.labels.cpu().numpy().astype("<i8").tobytes())
        object.__setattr__(self, "sha256", digest.hexdigest())

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: Tensor | Sequence[int]) -> LabelledImages:
        """The examples of these indices, in their order; a copy."""
        chosen = torch.as_tensor(indices, dtype=None if len(indices) else torch.int64)
        return LabelledImages(self.images[chosen], self.labels[chosen], self.classes)

    def inputs(self) -> Tensor:
        """(N, H W), in colour (N, 3 H W), float32 from 0 to 1: one row an image."""
        return self.images.flatten(1).float().div_(255)

    def pixels(self) -> Tensor:
        """(N, C, H, W) float32 from 0 to 1, with C = 1 for grey images and 3 for coloured ones."""
        images = self.images if self.images.ndim == 4 else self.images.unsqueeze(1)
        return images.float().div_(255)


def _check(images: Tensor, labels: Tensor, classes: tuple[str, ...]) -> None:
    if not (images.ndim == 3 or (images.ndim == 4 and images.shape[1] == 3)) or images.dtype != torch.uint8:
        raise DataError(
            f"images are {tuple(images.shape)} of {images.dtype}: expected (N, H, W) or (N, 3, H, W) of torch.uint8"
        )
    if labels.shape != images.shape[:1] or labels.dtype != torch.int64:
        raise DataError(
            f"labels are {tuple(labels.shape)} of {labels.dtype}: expected ({len(images)},) of torch.int64, one per "
            "image; do images and labels come from the same split?"
        )
    wrong = ((labels < 0) | (labels >= len(classes))).nonzero().flatten().tolist()
    if wrong:
        raise DataError(
            f"label {wrong[0]} is {int(labels[wrong[0]])} ({len(wrong)} of {len(labels)} are out of range): expected 0 "
            f"to {len(classes) - 1}, an index of {classes}"
        )
