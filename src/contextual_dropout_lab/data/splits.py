"""Split a data set in two, the same way on every machine and with every version of every library."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.images import LabelledImages

__all__ = ["split_validation", "taking_turns"]


def split_validation(data: LabelledImages, size: int, seed: int = 0) -> tuple[LabelledImages, LabelledImages]:
    """Set ``size`` examples apart for validation, stratified: every class keeps its share.

    Class c of n_c examples gives ``size n_c / N`` of them, rounded by the largest remainder (of equal remainders the
    lower class first); which ones depends on ``seed``, ``size`` and the labels alone. Both parts keep the order of
    ``data``.

    Args:
        data: N examples.
        size: of the validation part, 1 to N - 1.
        seed: another seed gives another split.

    Returns:
        (train, validation), N - size and size examples.

    Example:
        >>> data = LabelledImages(torch.zeros(8, 1, 1, dtype=torch.uint8), torch.tensor([0, 1] * 4), ("a", "b"))
        >>> train, validation = split_validation(data, 2)
        >>> train.labels.bincount().tolist(), validation.labels.bincount().tolist()
        ([3, 3], [1, 1])
    """
    if not 1 <= size < len(data):
        raise DataError(f"size is {size}: expected 1 to {len(data) - 1}, so that neither part of {len(data)} is empty")
    apart = _stratified(data.labels, size, seed)
    return data.subset((~apart).nonzero().flatten()), data.subset(apart.nonzero().flatten())


def taking_turns(labels: Tensor) -> Tensor:
    """An order in which the classes take turns: the first example of each, then the second of each, and so on.

    Folders of images come class by class, and the first hundred of them would be of one class.

    Args:
        labels: (N,) whole numbers of at least 0.

    Returns:
        (N,), indices of ``labels``.

    Example:
        >>> taking_turns(torch.tensor([0, 0, 0, 1, 2, 2]))
        tensor([0, 3, 4, 1, 5, 2])
    """
    by_class = labels.argsort(stable=True)
    counts = labels.bincount()
    turn = torch.arange(len(labels)) - (counts.cumsum(0) - counts).repeat_interleave(counts)  # within its class
    return by_class[turn.argsort(stable=True)]


def _stratified(labels: Tensor, size: int, seed: int) -> Tensor:
    """(N,) bool: which examples are set apart."""
    counts = labels.bincount().tolist()
    quotas = [size * count // len(labels) for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda c: -(size * counts[c] % len(labels)))
    for c in by_remainder[: size - sum(quotas)]:
        quotas[c] += 1
    # Python guarantees the same random() in every version, which neither torch nor numpy does for its permutations.
    draw = random.Random(seed).random
    order = torch.tensor([draw() for _ in range(len(labels))], dtype=torch.float64)
    apart = torch.zeros(len(labels), dtype=torch.bool)
    for c, quota in enumerate(quotas):
        members = (labels == c).nonzero().flatten()
        apart[members[order[members].argsort()[:quota]]] = True
    return apart
