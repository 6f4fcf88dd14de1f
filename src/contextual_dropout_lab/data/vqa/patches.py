"""Square patches of images in place of bottom-up features, for runs on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["patches"]


def patches(images: Tensor, size: int) -> Tensor:
    """Cut images into P = (H / size) (W / size) squares, row by row.

    Args:
        images: (N, C, H, W), uint8 from 0 to 255 or floating point, H and W multiples of ``size``.
        size: the side of a patch.

    Returns:
        (N, P, D), D = C size^2: channel by channel, row by row; of uint8 float32 from 0 to 1.

    Example:
        >>> patches(torch.arange(16.0).reshape(1, 1, 4, 4), 2)[0]
        tensor([[ 0.,  1.,  4.,  5.], [ 2.,  3.,  6.,  7.], [ 8.,  9., 12., 13.], [10., 11., 14., 15.]])
    """
    if images.ndim != 4 or not (images.is_floating_point() or images.dtype == torch.uint8):
        raise ValueError(
            f"images are {tuple(images.shape)} of {images.dtype}: expected (N, C, H, W), uint8 or floating"
        )
    if size < 1 or images.shape[2] % size or images.shape[3] % size:
        raise ValueError(
            f"size is {size} for images of {images.shape[2]} by {images.shape[3]}: expected a divisor of both; crop or "
            "resize them first"
        )
    cut = images.unfold(2, size, size).unfold(3, size, size)  # (N, C, H / size, W / size, size, size), a view
    flat = cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    return flat if flat.is_floating_point() else flat.float().div_(255)
