"""Only the sites, in a file of their own: safetensors, with what is needed to rebuild them. No pickle."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from contextual_dropout.conversion.convert import RECORD, like, sites, strip
from contextual_dropout.conversion.placement import PLACEMENTS, RECURRENT, Attention, Between, InPlaceOf
from contextual_dropout.conversion.report import Change, Conversion
from contextual_dropout.site import ContextualDropout

__all__ = ["load_sites", "save_sites"]

FORMAT = "contextual-dropout sites 1"


def save_sites(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write phi and eta, and how the sites sit in the model, to a safetensors file.

    The file is complete or not there: it is written under another name and then renamed.
    """
    found = sites(model)
    if not found:
        raise ValueError("the model has no contextual dropout site to save")
    if any(is_lazy(parameter) for site in found.values() for parameter in site.parameters()):
        raise ValueError("some sites do not know their number of features yet: run one batch before saving them")
    tensors = {
        f"{name}.{key}": value.contiguous() for name, site in found.items() for key, value in site.state_dict().items()
    }
    record = model.__dict__.get(RECORD)
    description = {
        "format": FORMAT,
        "sites": {name: site.config for name, site in found.items()},
        "changes": [asdict(change) for change in record.changes] if isinstance(record, Conversion) else [],
    }
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    save_file(tensors, partial, {"contextual_dropout": json.dumps(description)})
    os.replace(partial, target)


def load_sites(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Give a model the sites of a file: rebuilt on a plain base model, or filled in where it has them already.

    Args:
        model: of the same architecture as the saved one, with or without its sites.
        path: what :func:`save_sites` wrote.

    Returns:
        The model, changed in place.

    Raises:
        ValueError: the file is not one of ours, or does not fit the model; the layers are named, and the model is as
            before.
    """
    saved, changes, tensors = _read(path)
    rebuilt = not sites(model)
    if rebuilt:
        _rebuild(model, saved, changes, path)
    try:
        found = sites(model)
        _compare(found, saved, tensors, path)
        for name, site in found.items():
            site.load_state_dict({key: tensors[f"{name}.{key}"] for key in site.state_dict()})
    except BaseException:
        if rebuilt:
            strip(model)
        raise
    return model


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, dict[str, Any]], list[Change], dict[str, Tensor]]:
    """Configurations by site, changes and tensors of a file."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            description = json.loads((file.metadata() or {}).get("contextual_dropout", "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a safetensors file of contextual dropout sites: {error}") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{path} holds no contextual dropout sites that this version can read (expected {FORMAT!r})")
    try:
        changes = [
            Change(entry["name"], entry["kind"], entry["module"], tuple(entry["sites"]), tuple(entry["aliases"]))
            for entry in description["changes"]
        ]
        saved = {str(name): dict(config) for name, config in description["sites"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} describes its sites in a way that cannot be understood: {error!r}") from error
    return saved, changes, tensors


def _rebuild(
    model: nn.Module, saved: dict[str, dict[str, Any]], changes: list[Change], path: str | os.PathLike[str]
) -> None:
    """Put sites where the file says, with the options that it says, if the layers there are the right ones."""
    if not changes:
        raise ValueError(
            f"{path} is of a model that was not converted by cd.contextualize: build this one's sites first"
        )
    modules = dict(model.named_modules(remove_duplicate=False))
    problems = [problem for change in changes for problem in _misfits(change, modules, saved)]
    if problems:
        raise ValueError("\n  ".join([f"the sites of {path} do not fit this model:", *problems]))
    for change in changes:
        built = [ContextualDropout(**saved[name]) for name in change.sites]
        site = like(nn.ModuleList(built) if change.kind == Between.kind else built[0], model)
        PLACEMENTS[change.kind].attach(model, change.name, site)
        for alias in change.aliases:
            model.set_submodule(alias, model.get_submodule(change.name))
    setattr(model, RECORD, Conversion(changes))


def _misfits(change: Change, modules: dict[str, nn.Module], saved: dict[str, dict[str, Any]]) -> list[str]:
    """What speaks against putting sites at the layer of a change."""
    if change.kind not in PLACEMENTS or any(name not in saved for name in change.sites) or not change.sites:
        return [f"{change.name}: the file does not say what is to be put there"]
    if change.name not in modules or any(modules.get(alias) is not modules[change.name] for alias in change.aliases):
        return [f"{change.name}: there is no such layer"]
    module, configs = modules[change.name], [saved[name] for name in change.sites]
    wanted = f"{change.name}: expected {change.module}, found {type(module).__name__}"
    if change.kind == InPlaceOf.kind:
        return [wanted] if next(module.parameters(), None) is not None else []
    if change.kind == Attention.kind and type(module) is not nn.MultiheadAttention:
        return [wanted]
    if change.kind == Between.kind and type(module) not in RECURRENT:
        return [wanted]
    places = PLACEMENTS[change.kind].build(module, {}).modules()
    features = [place.features for place in places if isinstance(place, ContextualDropout)]
    if len(features) != len(configs):
        return [f"{change.name}: {len(configs)} sites for {len(features)} places"]
    pairs = [(here, config.get("features")) for here, config in zip(features, configs, strict=True)]
    wrong = [(here, there) for here, there in pairs if here not in (0, there)]  # 0: known only at the first input
    return [f"{change.name}: {here} features here, {there} in the file" for here, there in wrong]


def _compare(
    found: dict[str, ContextualDropout],
    saved: dict[str, dict[str, Any]],
    tensors: dict[str, Tensor],
    path: str | os.PathLike[str],
) -> None:
    problems = [f"{name}: in the file but not in the model" for name in saved if name not in found]
    problems += [f"{name}: in the model but not in the file" for name in found if name not in saved]
    for name in found.keys() & saved.keys():
        here, there = found[name].config, saved[name]
        different = (key for key in here if key != "initialisation" and here[key] != there.get(key))
        problems += [f"{name}: {key} is {here[key]} here, {there.get(key)} in the file" for key in different]
        for key, tensor in found[name].state_dict().items():
            there_shape = tuple(tensors[f"{name}.{key}"].shape) if f"{name}.{key}" in tensors else "missing"
            if there_shape != tuple(tensor.shape):
                problems.append(f"{name}.{key}: shape {tuple(tensor.shape)} here, {there_shape} in the file")
    if problems:
        raise ValueError("\n  ".join([f"{path} does not fit the model:", *sorted(problems)]))
