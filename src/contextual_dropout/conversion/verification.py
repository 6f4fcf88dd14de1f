"""Checking a converted network on its example: nothing may depend on what it did not depend on before.

A site that takes the wrong axis for the samples lets a sample see others, and one that pools where the network is
causal lets a position see later ones; shapes do not show it. So the end of every axis of every input is changed: where
only later entries of the plain network's outputs move, earlier ones of the converted network must not move either. Its
encoders are replaced meanwhile by others that let the rates depend on everything they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from contextual_dropout.conversion.example import Axes, Example, is_mask
from contextual_dropout.conversion.observation import observe, outputs
from contextual_dropout.conversion.order import acts_on_later, later_axes, moves_earlier
from contextual_dropout.nn.encoder import Encoder, GlobalLogits
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["Leak", "find_leaks"]

#: Earlier entries that move by more than this, relative to the largest, have seen what they must not see.
SEEN = 1e-4


@dataclass(frozen=True)
class Leak:
    """One dependence of a converted network's outputs that the plain network does not have.

    Attributes:
        shape: of the input on which outputs depend.
        axis: of that input.
        of_samples: whether that is the axis of the samples.
        sites: the names of the sites responsible; empty where no site is alone.
    """

    shape: tuple[int, ...]
    axis: int
    of_samples: bool
    sites: tuple[str, ...]

    @property
    def remark(self) -> str:
        """The message for the user."""
        if self.of_samples:
            return "through it the output of one sample would depend on other samples: no axis fits all its inputs"
        return (
            f"outputs would depend on later entries of axis {self.axis} of the input {self.shape} through its rates, "
            "which they do not in the plain network: try positions='own', or give its axes in overrides= (dim, "
            "batch_dim), exclude it, or accept that with positions='pooled'"
        )


def find_leaks(
    model: nn.Module, sites: Mapping[str, ContextualDropout], example: Example, samples: Axes
) -> Iterator[Leak]:
    """Change the end of every axis of all inputs except masks, with and without the sites, and compare.

    Args:
        model: converted, inside :func:`~contextual_dropout.conversion.discovery.plainly`.
        sites: the new ones by name, each of which has been called.
        example: to run.
        samples: the axis of the samples in each leaf that has one.
    """
    readers = {name: site for name, site in sites.items() if not isinstance(site.encoder, GlobalLogits)}
    plain = observe(model, example).outputs
    for leaf, tensor in example.tensors().items():
        for axis, length in enumerate(tensor.shape):
            of_samples = samples.get(leaf) == axis
            if length < 2 or is_mask(tensor):
                continue
            try:
                after = {
                    start: observe(model, example.with_other_end(leaf, axis, start)).outputs
                    for start in _starts(length)
                }
                axes = later_axes(plain, after, length)
                first = (
                    observe(model, example.with_other_first(leaf, axis)).outputs if axes and not of_samples else None
                )
            except Exception:  # it does not take such an input
                continue
            if not axes or (first is not None and not acts_on_later(plain, first, axes, length)):
                continue
            sees = partial(_sees_later, model, example, leaf, axis, axes)
            if sees(readers.values()):
                yield Leak(
                    tuple(tensor.shape), axis, of_samples, tuple(n for n, site in readers.items() if sees([site]))
                )


def _starts(length: int) -> list[int]:
    return sorted({length // 2, length - 1})


def _sees_later(
    model: nn.Module,
    example: Example,
    leaf: int,
    axis: int,
    axes: Mapping[int, int],
    readers: Iterable[ContextualDropout],
) -> bool:
    """Whether earlier entries of outputs move with a later end, where these sites have such rates."""
    length = example.tensors()[leaf].shape[axis]
    with _sensitive(readers):
        before = outputs(model, example)
        return any(
            moves_earlier(before, outputs(model, example.with_other_end(leaf, axis, start)), axes, start, length, SEEN)
            for start in _starts(length)
        )


@contextmanager
def _sensitive(readers: Iterable[ContextualDropout]) -> Iterator[None]:
    """Let the rates of sites depend on all that they read, whatever its scale."""
    encoders = [site.encoder for site in readers]
    for encoder in encoders:
        vars(encoder)["forward"] = partial(_waves, encoder)
    try:
        yield
    finally:
        for encoder in encoders:
            del vars(encoder)["forward"]


def _waves(encoder: Encoder, x: Tensor) -> Tensor:
    """Logits between -2 and 2 that never saturate."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(encoder.features, x.shape[-1], generator=generator).to(x)
    return 2 * torch.sin(nn.functional.linear(x, directions))
