"""Settling the options of sites by an example: the axis of the samples, rates for each position or not, pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from contextual_dropout.conversion.axes import SampleAxis, SampleRuns, find_samples, sample_axis
from contextual_dropout.conversion.causality import CausalAxes, causal_axes
from contextual_dropout.conversion.contexts import Constancy, constancies
from contextual_dropout.conversion.discovery import Inputs, plainly
from contextual_dropout.conversion.example import Axes, Example
from contextual_dropout.conversion.functional import SitePerCall
from contextual_dropout.conversion.hugging_face import BEFORE, SITE
from contextual_dropout.conversion.layer_options import LayerOptions
from contextual_dropout.conversion.multihead_attention import ContextualMultiheadAttention
from contextual_dropout.conversion.placement import CALL_HOOKS, STATE_HOOKS, ancestors_of
from contextual_dropout.conversion.record import Change, Conversion
from contextual_dropout.nn.attention_dropout import UNASKED, AttentionDropout
from contextual_dropout.nn.site import ContextualDropout, LazyContextualDropout

__all__ = ["Findings", "adjust", "is_on_weights", "remarks_on", "settle", "settle_features"]

SEQUENCE_CONVOLUTIONS = (nn.Conv1d, nn.ConvTranspose1d)
#: The attributes that are not taken from a newly built site.
KEPT = {*CALL_HOOKS, *STATE_HOOKS, "training", "sampling"}


@dataclass
class Findings:
    """The findings of an example.

    Attributes:
        reasons: why sites cannot stay, by their names.
        constant: sites whose context is the same for every sample, by their names.
        samples_known: whether the network runs with another number of samples.
        causality_known: whether it was found what is causal.
        repeatable: whether two passes on the same input are the same.
        example: the one that was run: as given, with three samples where it can have them.
        samples: the axis of the samples in each leaf of the example that has one.
        pooling: the names of the sites that pool over something.
        leaks: remarks on outputs that depend on more than in the plain network, by the names of the sites responsible.
    """

    example: Example
    samples: Axes = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    constant: list[str] = field(default_factory=list)
    samples_known: bool = True
    causality_known: bool = True
    repeatable: bool = True
    pooling: set[str] = field(default_factory=set)
    leaks: dict[str, str] = field(default_factory=dict)


def settle(
    model: nn.Module,
    sites: Mapping[str, ContextualDropout],
    example: Any,
    layers: Mapping[str, LayerOptions],
) -> Findings:
    """Give sites that have not been used yet the axes and the pooling that an example shows.

    Args:
        model: with these sites in it.
        sites: by name.
        example: an input, a tuple of arguments or a dictionary of keywords.
        layers: the options of each site's layer, by the site's name.
    """
    given = Example.of(example)
    with plainly(model):
        batches = find_samples(model, given)
        findings = Findings(given) if batches is None else Findings(batches.example, batches.axes)
        causal = causal_axes(model, findings.example, findings.samples)
        findings.samples_known = batches is not None
        findings.causality_known, findings.repeatable = causal.known, causal.repeatable
        for name, site in sites.items():
            reason = _settle_axes(model, name, site, batches, causal, layers[name])
            if reason is not None:
                findings.reasons[name] = reason
            elif any(len(call.shape) > len(site.batch_dims) + 1 for call in causal.calls.get(site, [])):
                findings.pooling.add(name)
        if batches is not None and not batches.rolled:  # rolled samples have the same means
            found = constancies(model, batches.example)
            findings.constant = [
                name
                for name, site in sites.items()
                if name not in findings.reasons and site in found and _settle_pooling(site, found[site], layers[name])
            ]
    return findings


def _settle_axes(
    model: nn.Module,
    name: str,
    site: ContextualDropout,
    batches: SampleRuns | None,
    causal: CausalAxes,
    layer: LayerOptions,
) -> str | None:
    """Adjust the axes of one site, or say why it cannot stay."""
    where = sample_axis(batches, site) if batches is not None else None
    if isinstance(where, str) and "batch_dim" not in layer.chosen:
        return where
    calls = batches.three.calls.get(site) if batches is not None else causal.calls.get(site)
    if not calls or "batch_dim" in layer.chosen:
        return None
    if not isinstance(where, SampleAxis):
        where = SampleAxis(site.batch_dims[0] % len(calls[0].shape), site.folded)
    position = causal.axes.get(site)
    if position is not None and not _is_open(site) and site.dim % len(calls[0].shape) == position:
        position = None  # known to be the features' axis
    likely = not causal.known and layer.build.get("positions") == "own"
    own = layer.positions == "own" or (layer.positions is None and (position is not None or likely))
    features = _features(site, batches)
    options = _axes(site, calls[0].shape, where, position, own, is_on_weights(model, name), features)
    adjust(site, options | {"folded": where.folded})
    return None


def _axes(
    site: ContextualDropout,
    shape: tuple[int, ...],
    where: SampleAxis,
    position: int | None,
    own: bool,
    on_weights: bool,
    features: int | None,
) -> dict[str, Any]:
    """The axes of samples, positions and features, as options of the site."""
    if on_weights:  # its context is made for these
        return {"batch_dim": (0, 2) if own else 0, "dim": 1}
    dim = (1 if len(shape) >= 4 else -1) if _is_open(site) else site.dim
    taken = (where.axis, position) if own else (where.axis,)
    options: dict[str, Any] = {}
    if features is not None and features not in taken and features != dim % len(shape):
        dim = options["dim"] = features
    if dim % len(shape) in taken and _is_open(site):
        free = [axis for axis in range(len(shape)) if axis not in taken]
        dim = options["dim"] = free[-1] if free else dim
    others = [axis for axis in range(len(shape)) if axis not in (where.axis, dim % len(shape))]
    return options | {"batch_dim": (where.axis, *others) if own and others else where.axis}


def _features(site: ContextualDropout, batches: SampleRuns | None) -> int | None:
    """The axis of the features where that is open and the layer before tells it: one width in all calls."""
    if batches is None or not _is_open(site):
        return None
    axes = set(batches.three.features[site])
    axis = axes.pop() if len(axes) == 1 else None
    same = axis is not None and len({call.shape[axis] for call in batches.three.calls[site]}) == 1
    return axis if same else None


def _is_open(site: nn.Module) -> bool:
    """Whether the axis of the features is a guess from the shape of the first input."""
    return getattr(site, "_dim_is_open", False)


def settle_features(site: nn.Module, inputs: Inputs) -> None:
    """Give a site the axis of its features where the layer before it tells another one than the shape suggests."""
    axes, lengths = {axis for _, axis in inputs}, {len(shape) for shape, _ in inputs}
    if not isinstance(site, LazyContextualDropout) or not _is_open(site) or len(axes) != 1 or len(lengths) != 1:
        return
    axis, length = axes.pop(), lengths.pop()
    if axis is not None and axis != (1 if length >= 4 else length - 1) and axis != site.batch_dims[0] % length:
        site.dim, site._dim_is_open = axis, False
        site.config["dim"] = axis


def is_on_weights(model: nn.Module, name: str) -> bool:
    """Whether a site masks attention weights and is given a context besides."""
    parent = model.get_submodule(name.rpartition(".")[0])
    own = name.rpartition(".")[2]
    if isinstance(parent, SitePerCall):
        return own.startswith("weights")
    of_transformers = own == SITE and BEFORE in vars(parent)
    return of_transformers or isinstance(parent, AttentionDropout | ContextualMultiheadAttention)


def _settle_pooling(site: ContextualDropout, found: Constancy, layer: LayerOptions) -> bool:
    """Let a site read deviations too where means are the same for all samples; True if its context stays constant."""
    if not found.mean:
        return False
    if found.deviation or "pooling" in layer.chosen:
        return True
    adjust(site, {"pooling": "mean-deviation"})
    return False


def adjust(site: ContextualDropout, options: Mapping[str, Any]) -> None:
    """Rebuild a site that has not been used yet with other options, as the same object and with its hooks."""
    changed = {key: value for key, value in options.items() if site.config.get(key) != _plain(value)}
    lazy = isinstance(site, LazyContextualDropout)
    if not changed and not (lazy and site._positions_are_open):
        return
    config = site.config | changed
    if lazy:
        config = {key: value for key, value in config.items() if key not in ("features", "context_features")}
        if site._dim_is_open and "dim" not in changed:
            config["dim"] = None
    elif "pooling" in changed and site.config["context_features"] is None:
        config["context_features"] = None
    fresh = type(site)(**config).to(site.prior_logit)
    vars(site).update({name: value for name, value in vars(fresh).items() if name not in KEPT})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def remarks_on(
    model: nn.Module, record: Conversion, layers: Mapping[str, LayerOptions], findings: Findings | None
) -> list[str]:
    """Note what the user should know about a conversion, and return what deserves a warning.

    Args:
        model: converted.
        record: of the conversion, which gets the notes.
        layers: the options of all layers, by their names.
        findings: the findings of the example, if there was one.
    """
    _guard_attention(model, record, layers)
    loud: dict[str, str] = dict(findings.leaks) if findings is not None else {}
    if findings is not None and not findings.samples_known:  # a graph's nodes are their samples, whatever their number
        (record.notes if findings.example.edges() else loud)["(samples)"] = (
            "the model does not run with another number of samples than the example has, or not in the same way: the "
            "first axis of each site's input is taken for the samples. If it is not, give batch_dim= in overrides="
        )
    for name in findings.constant if findings is not None else ():
        loud[name] = "its context is the same for every sample, so that its rates cannot depend on the input"
    random = findings is not None and not findings.repeatable
    open_ones = [change.name for change in record.changes if layers[change.name].positions is None]
    pooling = findings.pooling if findings is not None else set()
    unseen = {change.name for change in record.changes if layers[change.name].unseen and pooling & {*change.sites}}
    doubtful = [name for name in open_ones if random or layers[name].doubtful or name in unseen]
    if doubtful and (findings is None or not findings.causality_known):
        missing = "without an example" if findings is None else "with this example"
        if random:
            missing += ", since two passes on it differ (the network has a generator or a memory of its own)"
        loud["(positions)"] = (
            f"whether the network is causal is unknown {missing}, and sites pool over all positions, later ones "
            f"too, in {_some(doubtful)}: give example= a sequence with its mask, or choose positions='own' or 'pooled'"
        )
    guessed = [change.name for change in record.changes if findings is None and _is_guess(model, change)]
    if guessed:
        loud["(features)"] = (
            "whether the features are on the last axis, as of tokens (B, T, C), or on the second, as behind nn.Conv1d, "
            f"is unknown without an example in {_some(guessed)}: the last one is taken. Give example= an input, or "
            "overrides= their dim"
        )
    record.notes |= loud
    return [f"{name}: {note}" for name, note in loud.items()]


def _is_guess(model: nn.Module, change: Change) -> bool:
    """Whether a site that would take the last of three axes for the features is among layers that do not."""
    if not all(_is_open(model.get_submodule(name)) for name in change.sites):
        return False
    for part in reversed(ancestors_of(model, change.name)):
        layers = [each for each in part.modules() if isinstance(each, (*SEQUENCE_CONVOLUTIONS, nn.Linear))]
        if layers:
            return any(isinstance(each, SEQUENCE_CONVOLUTIONS) for each in layers)
    return False


def _guard_attention(model: nn.Module, record: Conversion, layers: Mapping[str, LayerOptions]) -> None:
    """Make sites that pool over queries by default look out for causal masks."""
    for change in record.changes:
        if layers[change.name].positions is None:
            for name in change.sites:
                if is_on_weights(model, name):
                    setattr(model.get_submodule(name), UNASKED, True)


def _some(names: list[str]) -> str:
    shown = ", ".join(name or "the model" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more layers"
