"""Finding the axis of the samples: the one that grows when the example is run with more of them.

A site's input may have the samples on any axis; several rows of each, one sample after the other (heads or windows
that are folded into the batch), or none at all (a table of positions). The same samples are run two and three at a
time: the rows that both passes have in common tell how the rows of a sample are arranged on an axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contextual_dropout.conversion.example import Axes, Example, is_mask
from contextual_dropout.conversion.observation import Observation, Summary, observe
from contextual_dropout.conversion.order import moved
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["SampleAxis", "SampleRuns", "find_samples", "sample_axis"]

#: Entries that differ by less, relative to the largest, are the same: a batch of another size rounds differently.
SAME = 1e-4


@dataclass(frozen=True)
class SampleRuns:
    """The example with two and with three samples, and what the sites saw.

    Attributes:
        axes: where the samples are in the example.
        example: with three samples.
        two: the pass with two samples.
        three: the pass with three.
        rolled: whether some samples have the tokens of others in another order.
    """

    axes: Axes
    example: Example
    two: Observation
    three: Observation
    rolled: bool = False


@dataclass(frozen=True)
class SampleAxis:
    """The axis of a site's samples.

    Attributes:
        axis: of the samples.
        folded: whether it holds several rows of each sample, one after the other.
    """

    axis: int
    folded: bool = False


def find_samples(model: nn.Module, example: Example) -> SampleRuns | None:
    """Run the example with two and three samples; None where it cannot run.

    Call it inside :func:`~contextual_dropout.conversion.discovery.plainly`.
    """
    second_best, coupled = None, None
    for axes in example.guesses():
        if coupled is not None and 1 in axes.values():  # such samples are on the first axis
            break
        batches = _run(model, example, axes)
        if batches is None or not _as_layers_expect(batches):
            continue
        grows = _grows(batches.two.outputs, batches.three.outputs)
        if not _apart(batches):
            coupled = coupled or (batches if grows else None)
            continue
        if grows and not _is_sequence(model, batches):
            return batches
        second_best = second_best or batches
    return second_best or coupled  # a network that returns only a loss, or samples that act on one another


def sample_axis(batches: SampleRuns, site: ContextualDropout) -> SampleAxis | str | None:
    """The axis of the samples in a site's input, why no site can be there, or None where the two passes do not tell."""
    two, three = (seen.calls.get(site, []) for seen in (batches.two, batches.three))
    if not two or len(two) != len(three):
        return None
    found = {_axis(*pair) for pair in zip(two, three, strict=True)}
    reasons = sorted(each for each in found if isinstance(each, str))
    places = {each for each in found if isinstance(each, SampleAxis)}
    if reasons:
        return reasons[0]
    if len({place.axis for place in places}) > 1:
        axes = " and ".join(str(place.axis) for place in sorted(places, key=lambda place: place.axis))
        return f"its calls have the samples on different axes, {axes}"
    return max(places, key=lambda place: place.folded)


def _run(model: nn.Module, example: Example, axes: Axes) -> SampleRuns | None:
    if _may_index_out_of_range(example, axes):
        return None
    for rolled in (False, True):
        smaller, larger = (example.of_samples(axes, samples, rolled=rolled) for samples in (2, 3))
        try:
            return SampleRuns(axes, larger, observe(model, smaller), observe(model, larger), rolled)
        except Exception:  # whatever the network raises: it does not take this many samples, or these
            continue
    return None


def _may_index_out_of_range(example: Example, axes: Axes) -> bool:
    """Whether rows of an accelerator's tensor are pointed at by a graph's edges, where an error would be fatal."""
    leaves = [example.leaves[i] for i in axes]
    return any(each.device.type != "cpu" for each in example.edges() if not any(each is leaf for leaf in leaves))


def _as_layers_expect(batches: SampleRuns) -> bool:
    """Whether torch's own layers see the samples where they expect them."""
    two, three = batches.two, batches.three
    if len(two.sequences) != len(three.sequences) or len(two.outputs) != len(three.outputs):
        return False
    second = [batches.example.leaves[leaf] for leaf, axis in batches.axes.items() if axis == 1]
    if second and not two.sequences and all(each.ndim == 2 for each in second):
        return False  # the second axis of a matrix is its features', unless torch's own layers say otherwise
    for (smaller, axis), (larger, _) in zip(two.sequences, three.sequences, strict=True):
        if _growing(smaller, larger) != [axis]:
            return False
    return True


def _apart(batches: SampleRuns) -> bool:
    """Whether samples have no influence on one another."""
    two, three = batches.two, batches.three
    pairs = list(zip(two.outputs, three.outputs, strict=True))
    for site in two.calls.keys() & three.calls.keys():
        pairs += zip(two.calls[site], three.calls[site], strict=False)
    return all(_rows_agree(smaller, larger) for smaller, larger in pairs) and any(
        _growing(smaller, larger) for smaller, larger in pairs
    )


def _is_sequence(model: nn.Module, batches: SampleRuns) -> bool:
    """Whether the first sample acts on later ones, though no later one acts on it: then these are points in time."""
    changed = batches.example
    for leaf, axis in batches.axes.items():
        changed = changed if is_mask(changed.leaves[leaf]) else changed.with_other_first(leaf, axis)
    try:
        outputs = observe(model, changed).outputs
    except Exception:  # whatever the network raises: it does not take such an input
        return False
    pairs = zip(batches.two.outputs, batches.three.outputs, outputs, strict=False)
    growing = [(three, other, _growing(two, three)) for two, three, other in pairs]
    return any(
        three.shape[axes[0]] == 3 and bool(moved(three, other, axes[0])[1:].any())
        for three, other, axes in growing
        if len(axes) == 1
    )


def _rows_agree(two: Summary, three: Summary) -> bool:
    growing = _growing(two, three)
    if len(growing) != 1 or 3 * two.shape[growing[0]] != 2 * three.shape[growing[0]]:
        return True  # nothing to compare
    rows, more = two.entries[growing[0]], three.entries[growing[0]]
    return _sample_major(rows, more) or _sample_minor(rows, more)


def _grows(two: list[Summary], three: list[Summary]) -> bool:
    return any(_growing(*pair) for pair in zip(two, three, strict=True))


def _growing(two: Summary, three: Summary) -> list[int]:
    """The axes whose length depends on the number of samples."""
    if len(two.shape) != len(three.shape):
        return []
    return [axis for axis, (a, b) in enumerate(zip(two.shape, three.shape, strict=True)) if a != b]


def _axis(two: Summary, three: Summary) -> SampleAxis | str:
    growing, shape = _growing(two, three), three.shape
    if not growing:
        return f"no axis of its input {shape} grows with the number of samples: its mask would be one for all of them"
    if len(growing) > 1 or 3 * two.shape[growing[0]] != 2 * three.shape[growing[0]]:
        return f"its input, {two.shape} for 2 samples and {shape} for 3, has no axis with the same rows of each sample"
    axis = growing[0]
    rows, more = two.entries[axis], three.entries[axis]
    if two.shape[axis] == 2:
        return SampleAxis(axis)
    if _sample_minor(rows, more):
        return (
            f"axis {axis} of its input {shape} holds the first rows of all samples, then the second ones, and so on: "
            "a site needs the rows of a sample one after the other"
        )
    return SampleAxis(axis, folded=True)


def _sample_major(two: Tensor, three: Tensor) -> bool:
    """Whether the rows of the first sample come first, then those of the second."""
    return _same(two, three[: len(two)])


def _sample_minor(two: Tensor, three: Tensor) -> bool:
    """Whether the first rows of all samples come first, then the second ones."""
    return _same(two.reshape(-1, 2), three.reshape(-1, 3)[:, :2])


def _same(some: Tensor, others: Tensor) -> bool:
    scale = torch.maximum(some.abs(), others.abs()).max().item() if some.numel() else 0.0
    return bool(((some - others).abs() <= SAME * scale).all())
