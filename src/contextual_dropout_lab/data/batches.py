"""Shuffled minibatches of a data set in memory, or on a disk behind a lookup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from contextual_dropout_lab.data.lookup import Lookup
from contextual_dropout_lab.data.noise import check_sd, gaussian_noise

__all__ = ["Augment", "Batches"]

#: Makes of a batch another one of as many examples, drawing from the generator.
Augment = Callable[[Tensor, torch.Generator], Tensor]
AddNoise = Callable[[Tensor, float, torch.Generator], Tensor]


class Batches:
    """Minibatches in a new order every epoch, each with fresh Gaussian noise; no Python per example.

    A batch of 128 times 784 takes 0.07 ms without noise and 0.45 ms with it, 0.35 of them for the normal numbers
    themselves (one thread).
    Batches may be kept: none is written to after it was given out.

    Args:
        inputs: (N, ...) floating point, from 0 to 1 if there is to be noise; a tensor or a
            :class:`~contextual_dropout_lab.data.lookup.Lookup`.
        labels: (N, ...), on the device of the inputs.
        batch_size: B; the last batch of an epoch has the N mod B that are left, if any.
        noise_sd: see :func:`~contextual_dropout_lab.data.gaussian_noise`; 0 draws none.
        augment: applied to every batch before the noise, such as
            :func:`~contextual_dropout_lab.data.augment.crop_and_flip`.
        add_noise: :func:`~contextual_dropout_lab.data.gaussian_noise`, or another function of its arguments.

    Example:
        >>> batches = Batches(torch.rand(10, 4), torch.arange(10), batch_size=4, noise_sd=0.1)
        >>> generator = torch.Generator().manual_seed(0)
        >>> [(tuple(x.shape), len(y)) for x, y in batches.epoch(generator)]
        [((4, 4), 4), ((4, 4), 4), ((2, 4), 2)]
        >>> len(batches)
        3
    """

    def __init__(
        self,
        inputs: Tensor | Lookup,
        labels: Tensor,
        batch_size: int,
        noise_sd: float = 0.0,
        augment: Augment | None = None,
        add_noise: AddNoise = gaussian_noise,
    ) -> None:
        if not inputs.is_floating_point():
            raise ValueError(f"inputs are of {inputs.dtype}: expected floating point; pass LabelledImages.inputs()")
        if len(inputs) != len(labels) or len(inputs) < 1:
            raise ValueError(f"{len(inputs)} inputs and {len(labels)} labels: expected as many of both, at least one")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: expected at least 1")
        check_sd(noise_sd)
        self.inputs, self.labels, self.batch_size = inputs, labels, batch_size
        self.noise_sd, self.augment, self.add_noise = noise_sd, augment, add_noise

    def __len__(self) -> int:
        return -(-len(self.inputs) // self.batch_size)

    def epoch(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """All examples once; the order, then augmentation and noise batch by batch, are drawn from ``generator``.

        Args:
            generator: on the device of the inputs. Its state afterwards is where the next epoch starts from.

        Yields:
            (B, ...) inputs and (B, ...) labels.
        """
        order = torch.randperm(len(self.inputs), generator=generator, device=self.inputs.device)
        parts = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        for rows, x in zip(parts, self._selected(parts), strict=True):
            if self.augment is not None:
                x = _augmented(x, generator, self.augment)
            noisy = self.add_noise(x, self.noise_sd, generator) if self.noise_sd else x
            yield noisy, self.labels.index_select(0, rows)

    def _selected(self, parts: Sequence[Tensor]) -> Iterator[Tensor]:
        """The inputs of each part; from a disk, the next ones are read while these are in use."""
        if not (isinstance(self.inputs, Lookup) and self.inputs.on_disk):
            yield from (self.inputs.index_select(0, rows) for rows in parts)  # half the time of inputs[rows]
            return
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self.inputs.index_select, 0, parts[0])
            for rows in parts[1:]:
                x, coming = coming.result(), reader.submit(self.inputs.index_select, 0, rows)
                yield x
            yield coming.result()


def _augmented(x: Tensor, generator: torch.Generator, augment: Augment) -> Tensor:
    augmented = augment(x, generator)
    if len(augmented) != len(x):
        raise ValueError(f"augment made {len(augmented)} examples of {len(x)}: expected as many")
    return augmented
