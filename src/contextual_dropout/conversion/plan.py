"""Deciding which modules get a site, before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.conversion import hugging_face
from contextual_dropout.conversion.calls import ModuleCalls, mentions_dropout
from contextual_dropout.conversion.functional import class_obstacle
from contextual_dropout.conversion.placement import (
    RECURRENT,
    After,
    Attention,
    Between,
    InPlaceOf,
    InPlaceOfCalls,
    InterfaceAttention,
    Placement,
    ancestors_of,
    has_state_hooks,
    name_taken,
)
from contextual_dropout.conversion.selection import Predicate, Selector, matcher

__all__ = ["Plan", "drop_rate", "has_dropout", "make_plan", "nothing_matched"]


_UNSEEN = "its forward calls F.dropout: give example= to convert it"
_UNREACHED = "its forward has F.dropout in it, which the example does not reach in evaluation mode"


@dataclass(frozen=True)
class Item:
    """A module that is to get a site."""

    name: str
    aliases: tuple[str, ...]
    module: nn.Module
    placement: Placement
    p: float | None
    batch_dim: int


@dataclass(frozen=True)
class Plan:
    """The changes to be made, and what will be left and why."""

    items: list[Item]
    left: dict[str, str]


def has_dropout(name: str, module: nn.Module) -> bool:
    """Whether dropout is applied in this very module."""
    inside = isinstance(module, nn.MultiheadAttention | nn.RNNBase) or hugging_face.is_attention(module)
    return isinstance(module, _DropoutNd) or (inside and drop_rate(module) != 0)


def drop_rate(module: nn.Module) -> float | None:
    """The drop rate that a module was built with; 0 if it has none, None if it has one that cannot be found."""
    if hugging_face.is_attention(module):
        return hugging_face.attention_drop_rate(module)
    rate = module.p if isinstance(module, _DropoutNd) else getattr(module, "dropout", 0.0)
    return float(rate) if isinstance(rate, int | float) else 0.0


def make_plan(
    model: nn.Module,
    replace: Selector | None,
    after: Selector | None,
    exclude: Selector | None,
    p: float | None,
    found: Mapping[nn.Module, ModuleCalls] | None = None,
) -> Plan:
    """Go through the model once and decide.

    Args:
        model: to be converted.
        replace: which dropout to replace.
        after: behind which layers to put a site.
        exclude: what to leave alone.
        p: initial drop rate; by default that of the replaced dropout.
        found: modules that call dropout as a function.

    Raises:
        TypeError: a layer with parameters was to be replaced.
        ValueError: nothing matched.
    """
    replaced, followed, excluded = matcher(replace), matcher(after), matcher(exclude)
    items: list[Item] = []
    left: dict[str, str] = {}
    held = _rate_holders(model)
    for name, aliases, module in _modules(model, excluded):
        if module in held.values():
            continue
        if not name and (isinstance(module, _DropoutNd) and replaced(name, module)):
            raise ValueError(
                "the model is itself a dropout layer: put it into an nn.Sequential, where it can be replaced"
            )
        names = (name, *aliases)
        calls = None if hugging_face.is_attention(module) else (found or {}).get(module)
        if any(followed(each, module) for each in names):
            placement: Placement = After
        elif calls is not None and (replace is has_dropout or any(replaced(each, module) for each in names)):
            placement = InPlaceOfCalls(calls)
        elif any(replaced(each, module) or _holder_selected(each, module, held, replaced) for each in names):
            placement = _replacement(name, module)
        else:
            if replace is has_dropout and calls is None and mentions_dropout(module):
                left[name] = _UNSEEN if found is None else _UNREACHED
            continue
        rate = p if p is not None else _rate(module, placement)
        if reason := _obstacle(module, placement, rate):
            left[name] = reason
        else:
            items.append(Item(name, aliases, module, placement, rate, batch_axis(model, name)))
            if placement is After and not isinstance(module, _DropoutNd) and (calls or has_dropout(name, module)):
                left[name] = "the dropout inside of it: a module gets a site behind it or inside, not both"
    if not items:
        raise ValueError(nothing_matched(model, left))
    return Plan(items, left)


def _rate(module: nn.Module, placement: Placement) -> float | None:
    """The default of the initial drop rate of a module's site; None if it is unknown, or the calls have their own."""
    if isinstance(placement, InPlaceOfCalls):
        return None
    return 0.2 if placement is After else drop_rate(module)


def _rate_holders(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """Attention modules that keep their rate in a dropout layer that is never called, with that layer."""
    found = {each: hugging_face.rate_holder(each) for each in model.modules() if hugging_face.is_attention(each)}
    return {attention: holder for attention, holder in found.items() if holder is not None}


def _holder_selected(name: str, module: nn.Module, held: dict[nn.Module, nn.Module], selected: Predicate) -> bool:
    """Whether the layer with the rate of an attention module was selected, which means the module's own dropout."""
    return module in held and any(
        selected(f"{name}.{child}", layer) for child, layer in module.named_children() if layer is held[module]
    )


def _modules(model: nn.Module, excluded: Predicate) -> Iterator[tuple[str, tuple[str, ...], nn.Module]]:
    """Every module once, with all its names, except those excluded under any name and what is inside them."""
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    out = [name for module, all_names in names.items() for name in all_names if excluded(name, module)]
    for module, all_names in names.items():
        if not any(name == prefix or name.startswith(prefix + ".") for prefix in out for name in all_names):
            yield all_names[0], tuple(all_names[1:]), module


def _replacement(name: str, module: nn.Module) -> Placement:
    if isinstance(module, nn.MultiheadAttention):
        return Attention
    if hugging_face.is_attention(module):
        return InterfaceAttention
    if isinstance(module, nn.RNNBase):
        return Between
    if next(module.parameters(), None) is not None:
        raise TypeError(
            f"{name!r} is a {type(module).__name__} with parameters and cannot be replaced by a site: use after= to "
            "put one behind it"
        )
    return InPlaceOf


def batch_axis(model: nn.Module, name: str) -> int:
    """The axis of the samples in a module's output: the second in networks built with batch_first=False."""
    for module in reversed([*ancestors_of(model, name), model.get_submodule(name)]):
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            return 0 if module.self_attn.batch_first else 1
        if isinstance(module, nn.MultiheadAttention | nn.RNNBase | nn.Transformer):
            return 0 if module.batch_first else 1
    return 0


def _obstacle(module: nn.Module, placement: Placement, rate: float | None) -> str | None:
    if reason := name_taken(module, placement):
        return reason
    if isinstance(placement, InPlaceOfCalls):
        reason = class_obstacle(module)  # and each of the calls may have one
        return reason and f"it calls F.dropout, but {reason}: use nn.Dropout layers to convert it"
    if rate is None:
        return "the name of its drop rate is unknown; give p= to convert it"
    if placement is Attention and type(module) is not nn.MultiheadAttention:
        return f"{type(module).__name__} computes its attention in its own way"
    if placement is Attention and getattr(module, "bias_k", None) is not None:
        return "attention with add_bias_kv is not supported"
    if placement is Attention and getattr(module, "add_zero_attn", False):
        return "attention with add_zero_attn is not supported"
    if placement is Between and type(module) not in RECURRENT:
        return f"{type(module).__name__} runs its layers in its own way"
    if placement is Between and isinstance(module, nn.RNNBase) and module.num_layers < 2:
        return "a single recurrent layer has no dropout inside; use after= to mask its outputs"
    if placement is InPlaceOf and isinstance(module, _DropoutNd) and not type(module).__module__.startswith("torch."):
        return f"{type(module).__name__} is a class of its own and may do more than dropout"
    if placement is InPlaceOf and has_state_hooks(module):
        return "it has hooks on its state dict, which a site in its place would not run: remove them to convert it"
    if placement is After and isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return "a container runs what it contains; choose its last layer instead"
    if not 0 < rate < 1:
        return f"its drop rate is {rate:g}; give p= to convert it"
    return None


def nothing_matched(model: nn.Module, left: dict[str, Any]) -> str:
    """The message for a model without a layer to convert."""
    lines = ["nothing in the model was selected for contextual dropout."]
    lines += [f"  {name}: {reason}" for name, reason in left.items()]
    layers = [
        f"  {name}: {type(module).__name__}"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.MultiheadAttention | nn.RNNBase)
    ]
    if layers:
        more = f"\n  ... and {len(layers) - 10} more" if len(layers) > 10 else ""
        lines += ["Layers that a site could follow, with after=[...] by type or name:", *layers[:10]]
        return "\n".join(lines) + more
    return "\n".join([*lines, "It has no linear, convolutional, attention or recurrent layers either."])
