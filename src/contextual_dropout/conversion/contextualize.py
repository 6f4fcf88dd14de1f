"""One call that gives a network contextual dropout, and one that takes it away."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from contextual_dropout.conversion.discovery import Inputs, arguments_of, buffers_kept, find_calls, find_inputs, plainly
from contextual_dropout.conversion.functional import sites_for_calls
from contextual_dropout.conversion.layer_options import LayerOptions, Positions, layer_options
from contextual_dropout.conversion.placement import (
    PLACEMENTS,
    InPlaceOf,
    InPlaceOfCalls,
    Placement,
    restore_fused_paths,
)
from contextual_dropout.conversion.plan import Item, has_dropout, make_plan, nothing_matched
from contextual_dropout.conversion.record import (
    CHILD,
    Change,
    Conversion,
    ConversionWarning,
    conversion_of,
    conversions,
    join,
    mark,
    marked,
    sites,
    unmark,
)
from contextual_dropout.conversion.selection import Selector, matcher
from contextual_dropout.conversion.settling import Findings, remarks_on, settle, settle_features
from contextual_dropout.conversion.snapshot import unchanged_on_error
from contextual_dropout.conversion.verification import find_leaks
from contextual_dropout.conversion.widths import with_a_site_per_width
from contextual_dropout.nn.site import ContextualDropout, masked
from contextual_dropout.nn.stochastic import sampling
from contextual_dropout.replay.compilation import eagerly, refuse_wrappers
from contextual_dropout.replay.distributed import refuse_wrapped
from contextual_dropout.replay.generators import preserved

__all__ = ["contextualize", "conversion_of", "conversions", "strip"]

Model = TypeVar("Model", bound=nn.Module)


def contextualize(
    model: Model,
    *,
    replace: Selector | None = has_dropout,
    after: Selector | None = None,
    exclude: Selector | None = None,
    family: Literal["bernoulli", "gaussian"] = "bernoulli",
    p: float | None = None,
    positions: Positions | None = None,
    example: Any = None,
    inplace: bool = True,
    overrides: Mapping[Any, Mapping[str, Any]] | None = None,
    **options: Any,
) -> Model:
    """Give a network contextual dropout.

    Dropout layers become sites that take over their drop rates; the dropout inside ``nn.MultiheadAttention`` and
    stacked ``nn.LSTM``/``nn.GRU``/``nn.RNN`` becomes sites on the attention weights and between the layers; with an
    example, so does ``F.dropout`` where a module calls it. Further sites can be put behind any layer. Either all is
    done or, if there is an error, nothing. The base model's parameters keep their names, values and ``requires_grad``,
    and in ``eval()`` the converted model computes what the base model did until it is trained.

    Args:
        model: any network.
        replace: which dropout to replace, all by default; ``None`` for none. By type, name, regular expression or
            predicate: see :data:`~contextual_dropout.conversion.selection.Selector`.
        after: behind which layers to put a site, chosen in the same way.
        exclude: what to leave alone, with everything inside it.
        family: of all new sites.
        p: initial drop rate of all new sites; by default that of the replaced dropout, and 0.2 behind layers.
        positions: for sequences. ``"own"``: each position has its own masks and rates, from its own features;
            ``"pooled"``: all share those of the sample, from the mean over its positions. By default ``"own"`` wherever
            the network is causal, where pooling would show each position what comes later, and pooled elsewhere.
        example: an input (or a tuple of arguments, or a dictionary of keywords) to run the model on, in eval mode.
            It shows the number of features of each site, otherwise known at the first call, their order, dropout that
            is not reached through its module, the axis of the samples in each site's input, and what is causal: the
            model also runs on two and three samples like those of the example, and on other ends of its sequences.
        inplace: change the model itself, or a copy.
        overrides: options for some layers, which take precedence: ``{selector: options}``; of several that fit a layer,
            later ones take precedence.
        options: further options of :class:`~contextual_dropout.ContextualDropout`. Two have other defaults here,
            ``initialisation="zero"`` and ``rescale=True``, to preserve the base model's outputs.

    Returns:
        The converted model; :func:`conversion_of` tells what was done.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
        >>> model = contextualize(model, after=nn.ReLU, example=torch.randn(1, 4))
        >>> conversion_of(model)
        2 contextual dropout sites
          1  site after ReLU()
          2  site in place of Dropout(p=0.1, inplace=False)
    """
    refuse_converted(model)
    refuse_wrapped(model, "convert it")
    refuse_wrappers(model)
    model = model if inplace else copy.deepcopy(model)
    with unchanged_on_error(model), buffers_kept(model):
        found = find_calls(model, example)
        plan = make_plan(model, replace, after, exclude, p, found)
        inputs = find_inputs(model, example, plan.items, found)
        settings = {"family": family, "initialisation": "zero", "rescale": True, "positions": positions} | options
        layers = layer_options(model, _per_layer(settings, overrides or {}, plan.items))
        record = Conversion(left=dict(plan.left))
        built = [(item, _build(model, item, layers[item.name].build, inputs, record)) for item in plan.items]
        for item, site in built:
            if next(site.parameters(), None) is not None:
                _attach(model, record, item, site)
        if not record.changes:
            raise ValueError(nothing_matched(model, record.left))
        findings = None if example is None else _settle(model, record, example, layers)
        if findings is not None:
            _rehearse(model, record, example)
            _verify(model, record, layers, findings)
            if not record.changes:
                raise ValueError(f"none of the model's dropout can become a site:\n{_left(record)}")
    for remark in remarks_on(model, record, layers, findings):
        warnings.warn(remark, ConversionWarning, stacklevel=2)
    if record.left:
        warnings.warn(f"not all dropout was converted:\n{_left(record)}", ConversionWarning, stacklevel=2)
    return model


def strip(model: Model) -> Model:
    """Return the plain model, exactly as it was before the conversion except for what training changed in it.

    Example:
        >>> model = contextualize(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1)))
        >>> strip(model)
        Sequential(
          (0): Linear(in_features=4, out_features=8, bias=True)
          (1): Dropout(p=0.1, inplace=False)
        )
    """
    found = marked(model)
    if not found:
        raise ValueError("the model was not converted by cd.contextualize: there is nothing to strip")
    with unchanged_on_error(model):
        for made, names in reversed(found):
            _undo(model, made.change.kind, names)
        restore_fused_paths(model)
    return model


def refuse_converted(model: nn.Module) -> None:
    """Raise if a part of the model has been converted."""
    for part, record in conversions(model).items():
        count = sum(len(change.sites) for change in record.changes)
        raise ValueError(
            f"{part or 'the model'} has been converted already ({count} sites): cd.strip(model) first, or give all "
            "selections in one call"
        )


def _per_layer(
    settings: dict[str, Any], overrides: Mapping[Any, Mapping[str, Any]], items: list[Item]
) -> dict[str, dict[str, Any]]:
    """The options of every layer by its name.

    Raises:
        ValueError: an override fits no layer.
    """
    result = {item.name: dict(settings) for item in items}
    for selector, options in overrides.items():
        selected = matcher(selector)
        fitting = [item.name for item in items if any(selected(n, item.module) for n in (item.name, *item.aliases))]
        if not fitting:
            raise ValueError(f"the override for {selector!r} fits none of the layers {', '.join(result)}")
        for name in fitting:
            result[name] |= options
    return result


def _build(
    model: nn.Module, item: Item, settings: dict[str, Any], inputs: dict[nn.Module, Inputs], record: Conversion
) -> nn.Module:
    """Build the site of an item, or several, without changing the model."""
    rate = {} if item.p is None else {"p": item.p}
    options = {"batch_dim": item.batch_dim} | rate | settings
    try:
        if isinstance(item.placement, InPlaceOfCalls):
            site: nn.Module
            site, left = sites_for_calls(item.placement.found, options)
            record.left |= {f"{item.name} (F.dropout, {call})".lstrip(): reason for call, reason in left.items()}
        else:
            seen = inputs.get(item.module, [])
            site = item.placement.build(item.module, options)
            settle_features(site, seen)
            site = with_a_site_per_width(site, [shape for shape, _ in seen])
        return like(site, model)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the site {item.placement.kind} {item.name or 'the model'}: {error}") from error


def _attach(model: nn.Module, record: Conversion, item: Item, site: nn.Module) -> None:
    leaf = next(item.module.children(), None) is None
    description = repr(item.module) if leaf else type(item.module).__name__
    place(model, item.placement, item.name, item.aliases, site)
    names = tuple(
        name
        for name, module in model.named_modules()
        if isinstance(module, ContextualDropout) and any(module is part for part in site.modules())
    )
    record.changes.append(change := Change(item.name, item.placement.kind, description, names, item.aliases))
    mark(model.get_submodule(item.name), record, change)


def place(model: nn.Module, placement: Placement, name: str, aliases: tuple[str, ...], site: nn.Module) -> None:
    """Let a model use a site at a module that has these names."""
    placement.attach(model, name, site)
    if placement is InPlaceOf:
        for alias in aliases:
            model.set_submodule(alias, site)


def like(site: nn.Module, model: nn.Module) -> nn.Module:
    """Move a site to the device and the precision of the model."""
    parameter = next(model.parameters(), None)
    if parameter is None:
        return site
    return site.to(parameter.device, parameter.dtype if parameter.is_floating_point() else None)


def _undo(model: nn.Module, kind: str, names: list[str]) -> None:
    """Take away what was placed at the module that has these names."""
    unmark(model.get_submodule(names[0]))
    PLACEMENTS[kind].detach(model, names[0])
    if kind == InPlaceOf.kind:
        for alias in names[1:]:
            model.set_submodule(alias, model.get_submodule(names[0]))


def _settle(model: nn.Module, record: Conversion, example: Any, layers: Mapping[str, LayerOptions]) -> Findings:
    """Give the sites the axes that the example tells, and take back those that cannot have any."""
    owners = _owners(record, layers)
    findings = settle(model, {name: site for name, site in sites(model).items() if name in owners}, example, owners)
    _leave_all(model, record, findings.reasons)
    return findings


def _verify(model: nn.Module, record: Conversion, layers: Mapping[str, LayerOptions], findings: Findings) -> None:
    """Take back sites through which samples see one another, and note those through which positions see later ones."""
    if not findings.repeatable:
        return
    owners = _owners(record, layers)
    with plainly(model):
        leaks = list(
            find_leaks(model, {name: sites(model)[name] for name in owners}, findings.example, findings.samples)
        )
    open_ones = {name for name, layer in owners.items() if "batch_dim" not in layer.chosen}
    mixing = {name: leak.remark for leak in leaks if leak.of_samples for name in leak.sites if name in open_ones}
    for leak in leaks:
        asked = not leak.of_samples and all(owners[name].positions == "pooled" for name in leak.sites or owners)
        if not asked and not mixing.keys() >= set(leak.sites or owners):
            findings.leaks[", ".join(leak.sites) or "(sites)"] = leak.remark
    _leave_all(model, record, mixing)
    record.order = [name for name in record.order if name not in mixing]


def _owners(record: Conversion, layers: Mapping[str, LayerOptions]) -> dict[str, LayerOptions]:
    """The options of each site's layer, by the site's name."""
    return {name: layers[change.name] for change in record.changes for name in change.sites}


def _leave_all(model: nn.Module, record: Conversion, reasons: Mapping[str, str]) -> None:
    """Take back the sites that cannot stay."""
    for change in list(record.changes):
        named = {name: reasons[name] for name in change.sites if name in reasons}
        if named:
            _leave(model, record, change, named)


def _leave(model: nn.Module, record: Conversion, change: Change, reasons: dict[str, str]) -> None:
    """Take back the sites of a change, or only those of some calls of dropout as a function."""
    sites_at = join(change.name, CHILD)
    by_call = {name[len(sites_at) + 1 :].partition(".")[0]: reason for name, reason in reasons.items()}
    staying = tuple(name for name in change.sites if name[len(sites_at) + 1 :].partition(".")[0] not in by_call)
    if change.kind == InPlaceOfCalls.kind and staying:
        for call, reason in by_call.items():
            del model.get_submodule(sites_at)[call]  # type: ignore[operator]
            record.left[f"{change.name} (F.dropout, {call.replace('_', ' ')})".lstrip()] = reason
        less = dataclasses.replace(change, sites=staying)
        record.changes[record.changes.index(change)] = less
        mark(model.get_submodule(change.name), record, less)
        return
    _undo(model, change.kind, [change.name, *change.aliases])
    record.changes.remove(change)
    record.left[change.name] = next(iter(reasons.values()))


class _Rehearsal(TorchFunctionMode):
    """A mode that notes which sites run, in which order, and dropout inside of fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[ContextualDropout] = []
        self.fused = 0

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        if func is masked and not any(args[0] is site for site in self.ran):
            self.ran.append(args[0])
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.fused += (args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)) > 0
        return func(*args, **kwargs)


def _rehearse(model: nn.Module, record: Conversion, example: Any) -> None:
    """Run the example and take back the sites that it does not reach."""
    arguments, keywords = arguments_of(example)
    devices = {parameter.device for parameter in model.parameters()}
    with eagerly(), preserved(devices), sampling(model), torch.no_grad(), _Rehearsal() as rehearsal:
        model(*arguments, **keywords)
    names = {module: name for name, module in model.named_modules()}
    record.order = [names[site] for site in rehearsal.ran if site in names]
    if rehearsal.fused:
        record.left["(fused)"] = (
            f"the dropout inside of {rehearsal.fused} calls of F.scaled_dot_product_attention, where no site can act: "
            "write the attention out, with nn.Dropout or contextual_dropout.nn.attention_dropout.AttentionDropout on "
            "its weights"
        )
    for change in list(record.changes):
        if not any(name in record.order for name in change.sites):
            _undo(model, change.kind, [change.name, *change.aliases])
            record.changes.remove(change)
            record.left[change.name] = (
                "the example never calls it as a module: its rate is read by functional or fused code, or it is unused"
            )


def _left(record: Conversion) -> str:
    return "\n".join(f"  {name or '(the model)'}: {reason}" for name, reason in record.left.items())
