"""Finding the order in which outputs depend on inputs: what moves where when one end of an axis changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from contextual_dropout.conversion.observation import Summary

__all__ = ["acts_on_later", "first_moved", "later_axes", "later_axis", "moved", "moves_earlier"]

#: Entries that differ by more, relative to the largest, have moved.
MOVED = 1e-6


def moved(before: Summary, after: Summary, axis: int, threshold: float = MOVED) -> Tensor:
    """True for entries along an axis that have changed, (size,); for all where the shape has changed."""
    old = before.entries[axis]
    if before.shape != after.shape:
        return torch.ones(len(old), dtype=torch.bool)
    return (old - after.entries[axis]).abs() > threshold * old.abs().max()


def first_moved(before: Summary, after: Summary, axis: int = 0) -> int | None:
    """The first entry along an axis that has changed; 0 where the shape has changed."""
    entries = moved(before, after, axis).nonzero()
    return int(entries[0]) if len(entries) else None


def later_axis(pairs: Mapping[int, tuple[Summary, Summary]], length: int) -> int | None:
    """The axis along which nothing moves before the place where the input changes.

    Args:
        pairs: a tensor before and after the change, by the place from which on the input differs.
        length: of the input's axis.
    """
    (before, _), *_ = pairs.values()
    for axis, size in enumerate(before.shape):
        firsts = {start: first_moved(*pair, axis) for start, pair in pairs.items()}
        if size >= length and all(first is None or first >= start + size - length for start, first in firsts.items()):
            return axis
    return None


def later_axes(before: Sequence[Summary], after: Mapping[int, Sequence[Summary]], length: int) -> dict[int, int]:
    """The axis of :func:`later_axis` for each output that moves at all and has one, by the outputs' numbers."""
    found: dict[int, int] = {}
    for i, summary in enumerate(before):
        pairs = {start: (summary, outputs[i]) for start, outputs in after.items() if i < len(outputs)}
        axis = later_axis(pairs, length) if pairs else None
        if axis is not None and any(first_moved(*pair) is not None for pair in pairs.values()):
            found[i] = axis
    return found


def acts_on_later(before: Sequence[Summary], after: Sequence[Summary], axes: Mapping[int, int], length: int) -> bool:
    """Whether a change of the first entry moves later ones of these outputs, not only the first."""
    return any(
        bool(moved(before[i], after[i], axis)[before[i].shape[axis] - length + 1 :].any()) for i, axis in axes.items()
    )


def moves_earlier(
    before: Sequence[Summary], after: Sequence[Summary], axes: Mapping[int, int], start: int, length: int, above: float
) -> bool:
    """Whether a change from ``start`` on moves earlier entries of these outputs by more than rounding."""
    return any(
        bool(moved(before[i], after[i], axis, above)[: start + before[i].shape[axis] - length].any())
        for i, axis in axes.items()
    )
