"""Augmentation of a whole batch at once: every image its own draw, no Python per image.

Images are (B, C, H, W). All draws are from a generator on their device, so that it alone decides the result; type
and device are kept, inputs are not written to, and nothing is recorded for gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "CIFAR_MEAN",
    "CIFAR_STD",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "center_crop",
    "crop_and_flip",
    "flip",
    "normalize",
    "pad_crop",
    "random_resized_crop",
    "resize",
]

#: Mean and sd of the pixels of CIFAR-10's training images from 0 to 1: red, green, blue.
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

#: The same of ImageNet, as everybody uses them.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

#: How often a box is drawn again that does not fit into its image.
TRIES = 10


@torch.no_grad()
def crop_and_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """The usual augmentation of CIFAR: :func:`pad_crop` by 4 pixels, then :func:`flip`; for ``Batches(augment=...)``.

    Example:
        >>> crop_and_flip(torch.rand(2, 3, 32, 32), torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3, 32, 32])
    """
    return flip(pad_crop(x, 4, generator), generator)


@torch.no_grad()
def pad_crop(x: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Surround the images with zeros and cut as much as they had out of that, anywhere with the same probability.

    Zero is black: crop before normalizing.

    Args:
        x: (B, C, H, W) of any type.
        padding: the width of the border, at least 0.
        generator: on the device of x.

    Returns:
        A new (B, C, H, W): image b moved by its own 0 to ``padding`` pixels in both directions.

    Example:
        >>> x = torch.arange(1, 5).reshape(1, 1, 2, 2).expand(3, 1, 2, 2)
        >>> pad_crop(x, 1, torch.Generator().manual_seed(1)).flatten(1)
        tensor([[2, 0, 4, 0],
                [3, 4, 0, 0],
                [0, 0, 1, 2]])
    """
    size, (height, width) = len(_images(x)), x.shape[2:]
    if padding < 0:
        raise ValueError(f"padding is {padding}: expected at least 0")
    top, left = torch.randint(2 * padding + 1, (2, size), generator=generator, device=x.device)
    windows = F.pad(x, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)  # (B, C, top, left, H, W), a view
    return windows[torch.arange(size, device=x.device), :, top, left]


@torch.no_grad()
def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror every image left to right with probability one half.

    Args:
        x: (B, C, H, W) of any type.
        generator: on the device of x.

    Returns:
        A new (B, C, H, W).

    Example:
        >>> x = torch.arange(3).expand(4, 1, 1, 3)
        >>> flip(x, torch.Generator().manual_seed(0)).flatten(1)
        tensor([[2, 1, 0],
                [0, 1, 2],
                [2, 1, 0],
                [2, 1, 0]])
    """
    mirrored = torch.rand(len(_images(x)), 1, 1, 1, generator=generator, device=x.device) < 0.5
    return torch.where(mirrored, x.flip(3), x)


@torch.no_grad()
def random_resized_crop(
    x: Tensor,
    size: int | tuple[int, int],
    generator: torch.Generator,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """A box of every image, of random area, shape and place, scaled to one size (Szegedy et al. 2015).

    The share of the area is uniform, width over height log-uniform, the place uniform over all whole pixels. A box
    that does not fit is drawn again, up to ten times; after that it is the largest one in the middle with a ``ratio``
    in range. Scaling is bilinear, without smoothing before: shrink very large images by :func:`resize` first.

    Args:
        x: (B, C, H, W) floating point.
        size: height and width of the result, or both in one.
        generator: on the device of x.
        scale: the smallest and the largest share of the area.
        ratio: the smallest and the largest width over height.

    Returns:
        (B, C, *size).

    Example:
        >>> random_resized_crop(torch.rand(2, 3, 40, 60), 16, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3, 16, 16])
    """
    _check_range("scale", scale, 1.0)
    _check_range("ratio", ratio, math.inf)
    top, left, height, width = _boxes(_floating(x), scale, ratio, generator)
    rows, columns = _pair(size)
    grid_y = _steps(top, height, rows, x.shape[2])[:, :, None].expand(-1, -1, columns)
    grid_x = _steps(left, width, columns, x.shape[3])[:, None, :].expand(-1, rows, -1)
    grid = torch.stack([grid_x, grid_y], -1).to(x.dtype)  # (B, rows, columns, 2)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


@torch.no_grad()
def resize(x: Tensor, size: int | tuple[int, int]) -> Tensor:
    """Scale images, bilinear and smoothed before shrinking.

    Args:
        x: (B, C, H, W) floating point.
        size: height and width, or the shorter of both, the shape being kept.

    Example:
        >>> resize(torch.rand(2, 3, 40, 60), 20).shape
        torch.Size([2, 3, 20, 30])
    """
    height, width = _floating(x).shape[2:]
    if isinstance(size, int):
        short = min(height, width)
        size = (round(height * size / short), round(width * size / short))
    return F.interpolate(x, _pair(size), mode="bilinear", antialias=True, align_corners=False)


@torch.no_grad()
def center_crop(x: Tensor, size: int | tuple[int, int]) -> Tensor:
    """The middle of images, a view; of an odd rest the larger half is above and to the left.

    Args:
        x: (B, C, H, W) of any type.
        size: height and width of the middle, or both in one; not larger than the images.

    Example:
        >>> center_crop(torch.arange(4).reshape(1, 1, 1, 4), (1, 2))
        tensor([[[[1, 2]]]])
    """
    (height, width), (rows, columns) = _images(x).shape[2:], _pair(size)
    if rows > height or columns > width:
        raise ValueError(f"size is {(rows, columns)}: expected at most that of the images, {(height, width)}")
    top, left = (height - rows + 1) // 2, (width - columns + 1) // 2
    return x[:, :, top : top + rows, left : left + columns]


@torch.no_grad()
def normalize(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(x - mean) / std, channel by channel.

    Args:
        x: (B, C, H, W) floating point.
        mean: C numbers.
        std: C numbers above 0.

    Example:
        >>> normalize(torch.tensor([0.5, 1.0]).reshape(1, 2, 1, 1), (0.5, 0.5), (0.25, 0.25)).flatten()
        tensor([0., 2.])
    """
    if not len(mean) == len(std) == _floating(x).shape[1] or min(std) <= 0:
        raise ValueError(f"mean is {mean}, std {std}: expected {x.shape[1]} numbers each, one a channel, std above 0")
    return (x - x.new_tensor(mean)[:, None, None]) / x.new_tensor(std)[:, None, None]


def _boxes(
    x: Tensor, scale: tuple[float, float], ratio: tuple[float, float], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height and width of a box in every image, (B,) each, whole numbers as floating point."""
    size, (height, width) = len(x), x.shape[2:]
    draws = torch.rand(2, size, TRIES, generator=generator, device=x.device)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draws[0])
    shape = torch.exp(math.log(ratio[0]) + math.log(ratio[1] / ratio[0]) * draws[1])
    heights, widths = (area / shape).sqrt().round(), (area * shape).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    first = fits.int().argmax(1, keepdim=True)  # 0 if none fits
    chosen = fits.gather(1, first)[:, 0]
    rows, columns = _largest(height, width, ratio)
    h = torch.where(chosen, heights.gather(1, first)[:, 0], rows)
    w = torch.where(chosen, widths.gather(1, first)[:, 0], columns)
    place = torch.rand(2, size, generator=generator, device=x.device)
    top = torch.where(chosen, torch.minimum((place[0] * (height - h + 1)).floor(), height - h), (height - rows) // 2)
    left = torch.where(chosen, torch.minimum((place[1] * (width - w + 1)).floor(), width - w), (width - columns) // 2)
    return top, left, h, w


def _largest(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    if width < ratio[0] * height:
        return max(1, min(height, round(width / ratio[0]))), width
    if width > ratio[1] * height:
        return height, max(1, min(width, round(height * ratio[1])))
    return height, width


def _steps(start: Tensor, length: Tensor, steps: int, side: int) -> Tensor:
    """(B, steps): where a side of every box is sampled, from -1 to 1 over the side of the image."""
    offsets = (torch.arange(steps, device=start.device) + 0.5) / steps
    pixels = start[:, None] + length[:, None] * offsets - 0.5
    # Within the box, as if it had been cut out first: nothing around it bleeds in.
    pixels = torch.minimum(torch.maximum(pixels, start[:, None]), (start + length - 1)[:, None])
    return (2 * pixels + 1) / side - 1


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(f"size is {size}: expected at least 1")
    return height, width


def _images(x: Tensor) -> Tensor:
    if x.ndim != 4:
        raise ValueError(f"images are {tuple(x.shape)}: expected (B, C, H, W); pass LabelledImages.pixels()")
    return x


def _floating(x: Tensor) -> Tensor:
    if not _images(x).is_floating_point():
        raise ValueError(f"images are of {x.dtype}: expected floating point; pass LabelledImages.pixels()")
    return x


def _check_range(name: str, limits: tuple[float, float], most: float) -> None:
    if not 0 < limits[0] <= limits[1] <= most or not math.isfinite(limits[1]):
        raise ValueError(f"{name} is {limits}: expected two numbers above 0, the smaller one first, at most {most}")
