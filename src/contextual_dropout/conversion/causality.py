"""Finding the sites in causal parts of a network, where no output may depend on later positions.

A site that pools over positions would look at all of them. How the network is built tells what is causal (decoders, the
attention of language models, unidirectional recurrent layers), and, with an example, what moves when the end of an
input changes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from contextual_dropout.conversion import hugging_face
from contextual_dropout.conversion.example import Example
from contextual_dropout.conversion.observation import Observation, Summary, is_lower_triangular, observe
from contextual_dropout.conversion.order import acts_on_later, first_moved, later_axes, later_axis, moved
from contextual_dropout.conversion.placement import ancestors_of
from contextual_dropout.nn.attention_dropout import AttentionDropout
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["CausalAxes", "Verdict", "causal_axes", "causal_by_construction"]

#: Names in code that makes causal masks itself.
CAUSAL_NAMES = {"tril", "triu", "tril_", "triu_", "is_causal", "generate_square_subsequent_mask"}
#: How the names of the classes of language models and decoders end in ``transformers``.
CAUSAL_MODELS = ("ForCausalLM", "LMHeadModel", "Decoder", "DecoderModel")
#: "likely": the code can make causal masks; only an example tells whether it does. "open": no layer that is known to
#: look at several positions at once was found.
Verdict = Literal["causal", "likely", "unknown", "free", "open"]
#: Layers on images: their axes are not positions in time.
IMAGES = (nn.Conv2d, nn.Conv3d, nn.Dropout2d, nn.Dropout3d)


def causal_by_construction(model: nn.Module, names: Iterable[str]) -> dict[str, Verdict]:
    """The verdict on each layer, whether it belongs to a causal part, as far as the network's construction tells.

    A layer's part is the smallest one around it that looks at several positions at once: with attention or recurrence.
    """
    looking = {module: verdict for module in model.modules() if (verdict := _verdict(module))}
    return {name: _of_layer(model, name, looking) for name in names}


def _of_layer(model: nn.Module, name: str, looking: dict[nn.Module, Verdict]) -> Verdict:
    layer = model.get_submodule(name)
    around = [*ancestors_of(model, name), layer][::-1] if name else [model]
    if any(isinstance(each, nn.TransformerDecoder | nn.TransformerDecoderLayer) for each in around):
        return "causal"
    if isinstance(layer, nn.RNNBase):
        return looking[layer]
    if isinstance(layer, IMAGES) or any(isinstance(each, nn.Transformer) for each in around):
        return "free"  # what is in a transformer's decoder has been found above
    whole = next((i for i, each in enumerate(around) if _is_pretrained(each)), 0)  # not its cross-attention alone
    for part in around[whole:]:
        inside = {module: looking[module] for module in part.modules() if module in looking}
        if inside:
            verdict = _together(inside, model)
            masked = verdict == "unknown" and any(looking.get(each) == "likely" for each in around)
            return "likely" if masked else verdict
    return "open"


def _together(looking: dict[nn.Module, Verdict], model: nn.Module) -> Verdict:
    """The verdict on a part with several layers that look at positions; in doubt, each position by itself is right."""
    verdicts = set(looking.values())
    certainties: tuple[Verdict, ...] = ("causal", "likely")
    for certain in certainties:
        if any(verdict == certain for module, verdict in looking.items() if not isinstance(module, nn.RNNBase)):
            return certain
    if "unknown" in verdicts or len(verdicts) > 1:
        return "unknown"
    if "causal" in verdicts:  # recurrent layers alone: of a language model, or of one branch next to images
        return "unknown" if any(isinstance(each, IMAGES) for each in model.modules()) else "causal"
    return "free"


def _verdict(module: nn.Module) -> Verdict | None:
    """The verdict on a module that looks at several positions; None for others."""
    if isinstance(module, nn.RNNBase):
        return "free" if module.bidirectional else "causal"
    if _has_causal_buffer(module) or isinstance(module, nn.TransformerDecoderLayer):
        return "causal"
    if type(module).__module__.startswith("transformers.") or hugging_face.is_attention(module):
        return _verdict_on_transformers(module)
    if isinstance(module, nn.MultiheadAttention | AttentionDropout):
        return "unknown"
    if type(module).__module__.startswith(("torch.", "contextual_dropout.")):
        return None
    names = _names(module)
    return "likely" if names & CAUSAL_NAMES else "unknown" if "scaled_dot_product_attention" in names else None


def _verdict_on_transformers(module: nn.Module) -> Verdict | None:
    """The verdict on a module of ``transformers``, by its attribute if it is attention, else by its class."""
    kind = type(module).__name__
    if _is_pretrained(module):
        return "causal" if kind.endswith(CAUSAL_MODELS) else None
    if not kind.endswith("Attention") and not hugging_face.is_attention(module):
        return None
    decoding = getattr(getattr(module, "config", None), "is_decoder", False)
    return "causal" if getattr(module, "is_causal", decoding) is True else "free"


def _is_pretrained(module: nn.Module) -> bool:
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(module, transformers.PreTrainedModel)


def _has_causal_buffer(module: nn.Module) -> bool:
    """Whether a module keeps a causal mask, as many do."""
    return any(is_lower_triangular(each) for each in module.buffers(recurse=False) if not each.is_meta)


def _names(module: nn.Module) -> set[str]:
    """The names that a module's forward uses, those of keyword arguments included."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    if code is None:
        return set()
    keywords = [each for each in code.co_consts if isinstance(each, tuple)]
    return set(code.co_names) | {name for group in keywords for name in group if isinstance(name, str)}


@dataclass(frozen=True)
class CausalAxes:
    """The causal parts that an example shows.

    Attributes:
        axes: for each site of a causal part, the axis of the positions in its input.
        calls: summaries of what each site was given.
        known: whether the question is settled: the network runs with another end of each input that is a sequence, or
            has attention that is not causal.
        repeatable: whether two passes on the same input are the same.
    """

    axes: dict[ContextualDropout, int]
    calls: dict[ContextualDropout, list[Summary]]
    known: bool
    repeatable: bool = True


def causal_axes(model: nn.Module, example: Example, samples: dict[int, int]) -> CausalAxes:
    """Change the ends of all inputs that are sequences, and see what moves.

    Args:
        model: with sites, inside :func:`~contextual_dropout.conversion.discovery.plainly`.
        example: to run.
        samples: the axis of the samples in each leaf that has one.
    """
    found: dict[ContextualDropout, int] = {}
    try:
        before, again = observe(model, example), observe(model, example)
    except Exception:  # whatever the network raises, the rehearsal will raise it again
        return CausalAxes(found, {}, False)
    pairs = zip(before.outputs, again.outputs, strict=False)
    if any(first_moved(*pair) is not None for pair in pairs):
        return CausalAxes(found, before.calls, known=False, repeatable=False)
    sequences = list(_sequences(model, example, samples))
    orders = [_order(model, example, leaf, axis, samples, before) for leaf, axis in sequences]
    matched = {leaf for (leaf, _), order in zip(sequences, orders, strict=True) if order.matched}
    for (leaf, _), order in zip(sequences, orders, strict=True):
        if order.matched or leaf not in matched:  # not the features' axis, where that of the positions is known
            found |= order.axes
    seen = before.attends and not before.causal
    tried = bool(before.outputs) and all(order.known for order in orders) and any(order.moved for order in orders)
    return CausalAxes(found, before.calls, seen or (tried if sequences else not before.causal))


@dataclass(frozen=True)
class _Order:
    """The order of positions that a change of one input's end shows.

    Attributes:
        axes: the axis of the positions for each site, where later entries do not act on earlier ones.
        known: whether the network runs with another end.
        moved: whether an output moved; always true for images, whose end may be pooled away.
        matched: whether an output has these positions on an axis of its own.
    """

    axes: dict[ContextualDropout, int] = field(default_factory=dict)
    known: bool = True
    moved: bool = True
    matched: bool = False


def _order(
    model: nn.Module, example: Example, leaf: int, axis: int, samples: dict[int, int], before: Observation
) -> _Order:
    tensor = example.tensors()[leaf]
    length = tensor.shape[axis]
    if length < 2:  # one position has no end
        return _Order(known=tensor.ndim > 3)
    try:
        starts = sorted({length // 2, length - 1})
        after = {start: observe(model, example.with_other_end(leaf, axis, start)) for start in starts}
    except Exception:  # it does not take such an input
        return _Order(known=tensor.ndim > 3)
    outputs = {start: seen.outputs for start, seen in after.items()}
    changes = [_first_moved(before.outputs, each) for each in outputs.values()]
    if not any(changes):
        return _Order(moved=tensor.ndim > 3)
    rows = tensor.shape[samples[leaf]] if leaf in samples else None
    unaligned = tensor.ndim < 4 and _is_partial(before.outputs, outputs, length, rows)
    if unaligned or (_is_causal(before, after, length) and _is_order(model, example, leaf, axis, before, after)):
        places = {site: _position_axis(site, before, after, length) for site in before.calls}
        matched = bool(later_axes(before.outputs, outputs, length))
        return _Order({site: place for site, place in places.items() if place is not None}, matched=matched)
    return _Order()


def _first_moved(before: list[Summary], after: list[Summary]) -> bool:
    return any(first_moved(*pair) is not None for pair in zip(before, after, strict=False))


def _is_partial(before: list[Summary], after: dict[int, list[Summary]], length: int, samples: int | None) -> bool:
    """Whether some of the outputs stay as they are, though none has the positions on an axis.

    Then it is not known which output belongs to which position, and separate rates are right in any case.
    """
    if any(length in summary.shape for summary in before):
        return False
    for outputs in after.values():
        pairs = list(zip(before, outputs, strict=False))
        whole = [(pair[0].shape, first_moved(*pair) is not None) for pair in pairs]
        if any((shape, True) in whole and (shape, False) in whole for shape, _ in whole):  # a list of steps
            return True
        for old, new in pairs:
            axes = [axis for axis, size in enumerate(old.shape) if size != samples and size > 1]
            some = [moved(old, new, axis) for axis in axes]
            if any(bool(each.any()) and not bool(each.all()) for each in some):
                return True
    return False


def _sequences(model: nn.Module, example: Example, samples: dict[int, int]) -> Iterator[tuple[int, int]]:
    """The leaves that may be sequences, and the axis of their positions."""
    convolutional = any(isinstance(each, nn.Conv1d | nn.ConvTranspose1d) for each in model.modules())
    for leaf, tensor in example.tensors().items():
        first = 1 - min(samples.get(leaf, 0), 1)
        if tensor.is_floating_point() and tensor.ndim > 3:
            axes = [axis for axis in range(tensor.ndim) if axis != samples.get(leaf, 0)]
        elif tensor.is_floating_point():
            axes = [first] * (tensor.ndim == 3) + [tensor.ndim - 1] * (convolutional and tensor.ndim in (2, 3))
        else:
            axes = [first] * (tensor.ndim == 2 and tensor.dtype is not torch.bool)  # zeros and ones are often tokens
        yield from ((leaf, axis) for axis in axes)


def _is_causal(before: Observation, after: dict[int, Observation], length: int) -> bool:
    """Whether no output moves at earlier positions; outputs without positions leave it to the attention."""
    moves = [
        {start: (summary, seen.outputs[i]) for start, seen in after.items() if i < len(seen.outputs)}
        for i, summary in enumerate(before.outputs)
    ]
    moving = [each for each in moves if any(first_moved(*pair) is not None for pair in each.values())]
    later = [later_axis(each, length) is not None for each in moving]
    positioned = [length in next(iter(each.values()))[0].shape for each in moving]
    if any(has and not only for has, only in zip(positioned, later, strict=True)):
        return False
    return any(later) or (bool(moving) and before.causal)


def _is_order(
    model: nn.Module, example: Example, leaf: int, axis: int, before: Observation, after: dict[int, Observation]
) -> bool:
    """Whether an axis is one of positions: of images only where earlier entries act on later ones."""
    tensor = example.tensors()[leaf]
    if tensor.ndim < 4:
        return True
    axes = later_axes(before.outputs, {start: seen.outputs for start, seen in after.items()}, tensor.shape[axis])
    first = observe(model, example.with_other_first(leaf, axis)).outputs if axes else []
    return acts_on_later(before.outputs, first, axes, tensor.shape[axis])


def _position_axis(
    site: ContextualDropout, before: Observation, after: dict[int, Observation], length: int
) -> int | None:
    """The axis of a site's input along which only later entries move, in all its calls that move at all."""
    axes: set[int | None] = set()
    for i, summary in enumerate(before.calls[site]):
        calls = {start: seen.calls.get(site, []) for start, seen in after.items()}
        pairs = {start: (summary, seen[i]) for start, seen in calls.items() if i < len(seen)}
        if any(first_moved(*pair) is not None for pair in pairs.values()):
            axes.add(later_axis(pairs, length))
    return axes.pop() if len(axes) == 1 else None
