"""Saving the sites alone, in a safetensors file with what is needed to rebuild them. No pickle.

The metadata of a file is validated before it is used.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from contextual_dropout._atomic import save_tensors
from contextual_dropout.conversion.contextualize import like, place
from contextual_dropout.conversion.functional import class_obstacle
from contextual_dropout.conversion.placement import (
    PLACEMENTS,
    RECURRENT,
    Attention,
    Between,
    InPlaceOf,
    InPlaceOfCalls,
    assembled,
    has_state_hooks,
    name_taken,
)
from contextual_dropout.conversion.record import Change, Conversion, conversions, join, mark, sites
from contextual_dropout.conversion.snapshot import unchanged_on_error
from contextual_dropout.nn.site import ContextualDropout
from contextual_dropout.replay.distributed import refuse_wrapped

__all__ = ["FORMAT", "OLDER", "build_site", "load_sites", "read_sites", "save_sites"]


#: The network's name in ``DataParallel``, ``DistributedDataParallel`` and ``AveragedModel``, and in ``torch.compile``.
_WRAPPED = ("module", "_orig_mod")


def save_sites(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write phi and eta, and how the sites sit in the model, to a safetensors file.

    The whole of the model or only parts of it may have been converted. A wrapper around it (``DataParallel``, for
    instance) leaves no trace in the file. The file is complete or absent: it is written elsewhere in its folder and
    then moved, so that several processes may save to the same path at once.
    """
    model = _unwrapped(model)
    found = _named_sites(model)
    if not found:
        raise ValueError("the model has no contextual dropout site to save")
    if any(is_lazy(parameter) for site in found.values() for parameter in site.parameters()):
        raise ValueError("some sites do not know their number of features yet: run one batch before saving them")
    tensors = {
        f"{name}.{key}": value.contiguous() for name, site in found.items() for key, value in site.state_dict().items()
    }
    description = {
        "format": FORMAT,
        "sites": {name: site.config for name, site in found.items()},
        "changes": [
            asdict(change) | {"part": part} for part, record in conversions(model).items() for change in record.changes
        ],
    }
    save_tensors(Path(path), tensors, {"contextual_dropout": json.dumps(description)})


def load_sites(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Give a model the sites of a file: rebuilt on a plain base model, or filled in where it has them already.

    Args:
        model: of the same architecture as the saved one, with or without its sites; wrapped or not.
        path: a file of :func:`save_sites`.

    Returns:
        The model, changed in place.

    Raises:
        ValueError: the file was not written by :func:`save_sites`, or does not fit the model; the layers are named,
            and the model is as before.
    """
    saved, parts, tensors = read_sites(path)
    rebuilt = not sites(model)
    base = _base_for(model, parts) if rebuilt else _unwrapped(model)
    if rebuilt:
        refuse_wrapped(model, "load them")
    try:
        with unchanged_on_error(base):
            if rebuilt:
                _rebuild(base, saved, parts, tensors, path)
            found = _named_sites(base)
            _compare(found, saved, tensors, path)
            for name, site in found.items():
                site.load_state_dict({key: tensors[f"{name}.{key}"] for key in site.state_dict()})
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{path} describes its sites in a way that cannot be understood: {error!r}") from error
    return model


def _levels(model: nn.Module) -> Iterator[nn.Module]:
    """The model, the network that it wraps if it is a wrapper, and so on."""
    yield model
    children = dict(model.named_children())
    if len(children) == 1 and (name := next(iter(children))) in _WRAPPED:
        yield from _levels(children[name])


def _unwrapped(model: nn.Module) -> nn.Module:
    """The converted network itself, or else the network inside of all wrappers."""
    levels = list(_levels(model))
    return next((level for level in levels if "" in conversions(level)), levels[-1])


def _base_for(model: nn.Module, parts: dict[str, list[Change]]) -> nn.Module:
    """The plain model that a file fits by its names: the given one, or the one that it wraps."""
    layers = {join(part, change.name) for part, changes in parts.items() for change in changes}
    levels = list(_levels(model))
    return next((level for level in levels if layers <= dict(level.named_modules()).keys()), levels[-1])


def _named_sites(model: nn.Module) -> dict[str, ContextualDropout]:
    """All sites; those of converted parts under the names that follow from the conversions' records."""
    recorded = {
        join(part, name): model.get_submodule(join(part, name))
        for part, record in conversions(model).items()
        for change in record.changes
        for name in change.sites
    }
    known = {id(site) for site in recorded.values()}
    placed = {name: site for name, site in sites(model).items() if id(site) not in known}
    return {name: site for name, site in (recorded | placed).items() if isinstance(site, ContextualDropout)}


def _rebuild(
    model: nn.Module,
    saved: dict[str, dict[str, Any]],
    parts: dict[str, list[Change]],
    tensors: dict[str, Tensor],
    path: str | os.PathLike[str],
) -> None:
    """Put the sites of the file at their layers, with their options, if these layers fit."""
    if not parts:
        raise ValueError(
            f"{path} is of a model that was not converted by cd.contextualize: build this model's sites first"
        )
    modules = dict(model.named_modules(remove_duplicate=False))
    pairs = [(part, change) for part, changes in parts.items() for change in changes]
    problems = [problem for part, change in pairs for problem in _misfits(part, change, modules, saved)]
    used: Counter[str] = Counter()
    for part, change in pairs:
        used.update({join(part, name) for name in (change.name, *change.sites)})
    problems += [f"{name}: the file names it more than once" for name, count in used.items() if count > 1]
    if problems:
        raise ValueError("\n  ".join([f"the sites of {path} do not fit this model:", *problems]))
    built = {name: build_site(name, config, tensors, path) for name, config in saved.items()}
    for part, changes in parts.items():
        converted, record = modules[part], Conversion()
        for change in changes:
            own = [built[join(part, name)] for name in change.sites]
            site = like(assembled(change, own), converted)
            place(converted, PLACEMENTS[change.kind], change.name, change.aliases, site)
            record.changes.append(change)
            mark(converted.get_submodule(change.name), record, change)


def _misfits(part: str, change: Change, modules: dict[str, nn.Module], saved: dict[str, dict[str, Any]]) -> list[str]:
    """The reasons against putting sites at the layer of a change."""
    layer, wanted_sites = join(part, change.name), [join(part, name) for name in change.sites]
    if change.kind not in PLACEMENTS or any(name not in saved for name in wanted_sites) or not wanted_sites:
        return [f"{layer}: the file has no sites of a known kind for it"]
    if layer not in modules or any(modules.get(join(part, alias)) is not modules[layer] for alias in change.aliases):
        return [f"{layer}: there is no such layer"]
    module, configs = modules[layer], [saved[name] for name in wanted_sites]
    wanted = f"{layer}: expected {change.module}, found {type(module).__name__}"
    if change.kind == InPlaceOf.kind and not change.name:
        return [f"{layer or '(the model)'}: it cannot be replaced inside of itself"]
    if change.kind == InPlaceOf.kind and has_state_hooks(module):
        return [f"{layer}: it has hooks on its state dict, which a site in its place would not run"]
    if reason := name_taken(module, PLACEMENTS[change.kind]):
        return [f"{layer}: {reason}"]
    if change.kind == InPlaceOf.kind:
        return [wanted] if next(module.parameters(), None) is not None else []
    if change.kind == Attention.kind and type(module) is not nn.MultiheadAttention:
        return [wanted]
    if change.kind == Between.kind and type(module) not in RECURRENT:
        return [wanted]
    if change.kind == InPlaceOfCalls.kind:
        reason = class_obstacle(module)  # what the module calls is seen only when it runs
        return [f"{layer}: {reason}"] if reason else []
    places = PLACEMENTS[change.kind].build(module, {}).modules()
    features = [place.features for place in places if isinstance(place, ContextualDropout)]
    if features == [0]:
        return []  # known only at the first input, and may be one of several widths
    if len(features) != len(configs):
        return [f"{layer}: {len(configs)} sites for {len(features)} places"]
    pairs = [(here, config.get("features")) for here, config in zip(features, configs, strict=True)]
    wrong = [(here, there) for here, there in pairs if here != there]
    return [f"{layer}: {here} features here, {there} in the file" for here, there in wrong]


def _compare(
    found: dict[str, ContextualDropout],
    saved: dict[str, dict[str, Any]],
    tensors: dict[str, Tensor],
    path: str | os.PathLike[str],
) -> None:
    problems = [f"{name}: in the file but not in the model" for name in saved if name not in found]
    problems += [f"{name}: in the model but not in the file" for name in found if name not in saved]
    for name in found.keys() & saved.keys():
        here, there = found[name].config, OLDER | saved[name]
        different = (key for key in here if key != "initialisation" and here[key] != there.get(key))
        problems += [f"{name}: {key} is {here[key]} here, {there.get(key)} in the file" for key in different]
        for key, tensor in found[name].state_dict().items():
            there_shape = tuple(tensors[f"{name}.{key}"].shape) if f"{name}.{key}" in tensors else "missing"
            if there_shape != tuple(tensor.shape):
                problems.append(f"{name}.{key}: shape {tuple(tensor.shape)} here, {there_shape} in the file")
    if problems:
        raise ValueError("\n  ".join([f"{path} does not fit the model:", *sorted(problems)]))


FORMAT = "contextual-dropout sites 1"
#: The options that older files do not name, with the values that sites had then.
OLDER: dict[str, Any] = {"folded": False, "pooling": "mean"}


def read_sites(
    path: str | os.PathLike[str],
) -> tuple[dict[str, dict[str, Any]], dict[str, list[Change]], dict[str, Tensor]]:
    """Read a file: configurations by site, changes by converted part, and tensors."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            description = json.loads((file.metadata() or {}).get("contextual_dropout", "{}"))
            tensors = {key: _as_now(key, file.get_tensor(key)) for key in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a safetensors file of contextual dropout sites: {error}") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{path} holds no contextual dropout sites that this version can read (expected {FORMAT!r})")
    try:
        parts: dict[str, list[Change]] = defaultdict(list)
        for entry in description["changes"]:
            part, change = _change(entry)
            parts[part].append(change)
        saved = {str(name): dict(config) for name, config in description["sites"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} describes its sites in a way that cannot be understood: {error!r}") from error
    if wrong := [key for key, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise ValueError(
            f"{path} has parameters of sites that are NaN or infinite: {', '.join(wrong)}. A site with them would make "
            "NaN of the network's features; save the sites of a run that did not diverge"
        )
    return saved, parts, tensors


def _as_now(name: str, tensor: Tensor) -> Tensor:
    """Give the prior of an older file, a scalar, the shape that it has now."""
    return tensor.reshape(1) if name.endswith("prior_logit") and tensor.ndim == 0 else tensor


def _change(entry: dict[str, Any]) -> tuple[str, Change]:
    """Read an entry: the name of a converted part, and the change of a module in it."""
    names = tuple(entry["sites"]), tuple(entry["aliases"])
    part, change = entry.get("part", ""), Change(entry["name"], entry["kind"], str(entry["module"]), *names)
    if not all(isinstance(text, str) for text in (part, change.name, change.kind, *change.sites, *change.aliases)):
        raise TypeError("names must be strings")
    return part, change


def build_site(
    name: str, config: dict[str, Any], tensors: dict[str, Tensor], path: str | os.PathLike[str]
) -> ContextualDropout:
    """Build a site with the options of a file; it takes memory only if the file has tensors of its sizes."""
    try:
        with torch.device("meta"):
            wanted = ContextualDropout(**config).state_dict()
    except Exception as error:
        raise ValueError(f"{path}: the options of {name} are not those of a site: {error}") from error
    for key, value in wanted.items():
        here = tensors.get(f"{name}.{key}")
        if here is None or here.shape != value.shape:
            found = "missing" if here is None else f"of shape {tuple(here.shape)}"
            raise ValueError(f"{path}: {name}.{key} is {found}: expected {tuple(value.shape)} by the options of {name}")
    return ContextualDropout(**config)
