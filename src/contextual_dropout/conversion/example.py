"""Variations of an example: other samples, other batch sizes, another end of a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from contextual_dropout.conversion.discovery import arguments_of

__all__ = ["Axes", "Example", "is_mask"]

#: The axis of the samples for each leaf that has one.
Axes = dict[int, int]
#: The most guesses of these axes.
GUESSES = 8


@dataclass(frozen=True)
class Example:
    """The arguments of one call, whose tensors can be changed one by one.

    Attributes:
        leaves: tensors and other objects, out of all dictionaries, lists and tuples.
        structure: puts them together again.
    """

    leaves: tuple[Any, ...]
    structure: TreeSpec

    @classmethod
    def of(cls, example: Any) -> Example:
        """Take apart what the user gave: an input, a tuple of arguments or a dictionary of keywords."""
        leaves, structure = tree_flatten(arguments_of(example))
        return cls(tuple(leaves), structure)

    def call(self, model: Any) -> Any:
        """Call a model with copies, in which it may write."""
        leaves = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        arguments, keywords = tree_unflatten(leaves, self.structure)
        return model(*arguments, **keywords)

    def tensors(self) -> dict[int, Tensor]:
        """The leaves that are tensors with at least one axis."""
        return {i: leaf for i, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor) and leaf.ndim > 0}

    def edges(self) -> list[Tensor]:
        """The tensors that may be a graph's edges: pairs of whole numbers, (2, E)."""
        return [
            each for each in self.tensors().values() if not each.is_floating_point() and each.ndim == len(each) == 2
        ]

    def guesses(self) -> Iterator[Axes]:
        """Guess the axes of the samples, the likeliest first: the first axis of all tensors that agree on its size.

        Then the first axis of the first of them alone, then the second axis, as torch's sequence layers have it.
        """
        return islice(self._guesses(), GUESSES)

    def _guesses(self) -> Iterator[Axes]:
        tensors = self.tensors()
        for axis in (0, 1):
            for size in dict.fromkeys(each.shape[axis] for each in tensors.values() if each.ndim > axis):
                found = {i: where for i, each in tensors.items() if (where := _axis_of(size, each, axis)) is not None}
                first = next((i for i in found if found[i] == axis), None)
                if first is None or not size:
                    continue
                yield found
                if len(found) > 1:
                    yield {first: axis}

    def of_samples(self, axes: Axes, samples: int, *, rolled: bool = False) -> Example:
        """The example with this many different samples; a smaller number takes the first ones of a larger.

        Args:
            axes: where they are.
            samples: how many.
            rolled: new samples of tokens have those of a given one in another order, for networks that count some.
        """
        leaves = list(self.leaves)
        for i, axis in axes.items():
            leaves[i] = torch.stack(_samples(leaves[i], axis, samples, rolled), axis)
        return replace(self, leaves=tuple(leaves))

    def with_other_end(self, leaf: int, axis: int, start: int) -> Example:
        """The example with other entries from ``start`` on along the axis of one leaf."""
        return self._with_others(leaf, axis, slice(start, None))

    def with_other_first(self, leaf: int, axis: int) -> Example:
        """The example with another first entry along the axis of one leaf."""
        return self._with_others(leaf, axis, slice(1))

    def _with_others(self, leaf: int, axis: int, entries: slice) -> Example:
        tensor: Tensor = self.leaves[leaf]
        changed = tensor.clone()
        part = changed.movedim(axis, 0)[entries]
        part.copy_(_noisy(part, seed=0) if tensor.is_floating_point() else _other_tokens(part, tensor))
        return replace(self, leaves=(*self.leaves[:leaf], changed, *self.leaves[leaf + 1 :]))


def is_mask(tensor: Tensor) -> bool:
    """Whether a tensor has no other values than true and false."""
    if tensor.dtype is torch.bool:
        return True
    return not tensor.is_complex() and bool(((tensor == 0) | (tensor == 1)).all())


def _axis_of(size: int, tensor: Tensor, axis: int) -> int | None:
    """The axis of this size: the second one is the samples' only where it is not the last, or nothing else fits."""
    if axis == 0:
        return 0 if tensor.shape[0] == size else None
    if tensor.ndim > 2 and tensor.shape[1] == size:
        return 1
    return next((where for where in (0, 1) if tensor.ndim > where and tensor.shape[where] == size), None)


def _samples(tensor: Tensor, axis: int, samples: int, rolled: bool) -> list[Tensor]:
    rows: list[Tensor] = []
    for i in range(samples):
        row = tensor.select(axis, i % tensor.shape[axis])
        seen = i >= tensor.shape[axis] or any(torch.equal(row, earlier) for earlier in rows)
        rows.append(_varied(row, i, tensor, rolled) if seen else row)
    return rows


def _varied(row: Tensor, number: int, known: Tensor, rolled: bool) -> Tensor:
    """Another sample like this one: with noise where it has real numbers, else with some other tokens."""
    if row.is_floating_point() and not (is_mask(row) and torch.unique(row).numel() == 2):
        return _noisy(row, number)
    if row.ndim == 0 or is_mask(row):
        return row
    if rolled:
        return row.roll(number, -1)
    return torch.where(
        torch.arange(row.shape[-1], device=row.device) % (number + 1) == 0, _other_tokens(row, known), row
    )


def _noisy(tensor: Tensor, seed: int) -> Tensor:
    noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed))
    finite = tensor[tensor.isfinite()].float()
    spread = finite.std().item() if finite.numel() > 1 else 0.0
    return tensor + (noise * (spread or 1.0)).to(tensor)


def _other_tokens(tokens: Tensor, known: Tensor) -> Tensor:
    """Each token replaced by the next one of those that are known to be valid."""
    values: Tensor = torch.unique(known)  # sorted
    if len(values) < 2:
        return torch.where(tokens > 0, tokens - 1, tokens + 1)
    return values[(torch.searchsorted(values, tokens.contiguous()) + 1) % len(values)]
