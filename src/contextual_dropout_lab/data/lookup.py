"""Inputs that many examples share: questions on one image, say."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from contextual_dropout_lab.data.noise import gaussian_noise

__all__ = ["Lookup", "Rows", "noise_on_regions"]


class Rows(Protocol):
    """Rows that can be read by their numbers: a tensor, or an object that reads them from a disk."""

    @property
    def shape(self) -> torch.Size: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def is_floating_point(self) -> bool: ...
    def index_select(self, dim: int, index: Tensor, /) -> Tensor:
        """The rows of ``index``, (B, ...)."""


class Lookup:
    """Inputs of N examples: for each the row of a table of M. Takes the place of a tensor (N, ...) in ``Batches``.

    Args:
        table: (M, ...).
        rows: (N,), whole numbers from 0 to M - 1. Inputs are given out on their device, wherever the table is.

    Example:
        >>> inputs = Lookup(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1, 1]))
        >>> len(inputs), inputs[1:3], inputs.index_select(0, torch.tensor([0]))
        (3, tensor([[2.], [2.]]), tensor([[1.]]))
    """

    def __init__(self, table: Rows, rows: Tensor) -> None:
        if len(rows) and not (int(rows.min()) >= 0 and int(rows.max()) < table.shape[0]):
            raise ValueError(f"rows go from {int(rows.min())} to {int(rows.max())}: the table has {table.shape[0]}")
        self.table, self.rows = table, rows

    @property
    def shape(self) -> torch.Size:
        """The shape (N, ...) of the tensor that it stands for."""
        return torch.Size([len(self.rows), *self.table.shape[1:]])

    @property
    def device(self) -> torch.device:
        """The device of the inputs that are given out."""
        return self.rows.device

    @property
    def on_disk(self) -> bool:
        """Whether the table is not a tensor, and reading its rows takes time."""
        return not isinstance(self.table, Tensor)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the table's numbers."""
        return self.table.dtype

    def to(self, device: torch.device) -> Lookup:
        """Move to another device; rows on a disk are sent there as they are read."""
        table = self.table.to(device) if isinstance(self.table, Tensor) else self.table
        return Lookup(table, self.rows.to(device))

    def is_floating_point(self) -> bool:
        """Whether the table's numbers are floating-point numbers."""
        return self.table.is_floating_point()

    def index_select(self, dim: int, index: Tensor, /) -> Tensor:
        """The inputs of the examples ``index``, (B, ...)."""
        return self.table.index_select(dim, self.rows[index].to(self.table.device)).to(self.device)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Tensor:
        return self.table.index_select(0, self.rows[part].to(self.table.device)).to(self.device)


def noise_on_regions(x: Tensor, sd: float, generator: torch.Generator) -> Tensor:
    """Apply :func:`gaussian_noise` to regions (B, R, D), except for those that are padding, all zero.

    Example:
        >>> x = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]])
        >>> noise_on_regions(x, 5.0, torch.Generator().manual_seed(0))[0, 1]
        tensor([0., 0.])
    """
    padded = (x == 0).all(-1, keepdim=True)
    return gaussian_noise(x, sd, generator).masked_fill_(padded, 0.0)
