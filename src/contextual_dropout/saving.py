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

from contextual_dropout.conversion.convert import RECORD
from contextual_dropout.conversion.parameters import sites
from contextual_dropout.conversion.placement import PLACEMENTS
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
        ValueError: the file is not one of ours, or does not fit the model; the layers are named.
    """
    description, tensors = _read(path)
    if not sites(model):
        _rebuild(model, description)
    found = sites(model)
    _compare(found, description["sites"], path)
    for name, site in found.items():
        prefix = f"{name}."
        state = {key[len(prefix) :]: tensor for key, tensor in tensors.items() if key.startswith(prefix)}
        site.load_state_dict(state)
    return model


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safetensors.safe_open(path, "pt") as file:
            description = json.loads((file.metadata() or {}).get("contextual_dropout", "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a safetensors file of contextual dropout sites: {error}") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{path} holds no contextual dropout sites that this version can read (expected {FORMAT!r})")
    return description, tensors


def _rebuild(model: nn.Module, description: dict[str, Any]) -> None:
    """Put sites where the file says, with the options that it says."""
    names = dict(model.named_modules())
    missing = [change["name"] for change in description["changes"] if change["name"] not in names]
    if missing or not description["changes"]:
        what = f"it lacks the layers {missing}" if missing else "the saved model was not converted by cd.contextualize"
        raise ValueError(f"the sites cannot be rebuilt on this model: {what}; build the model with its sites first")
    changes = []
    for entry in description["changes"]:
        change = Change(entry["name"], entry["kind"], entry["module"], tuple(entry["sites"]), tuple(entry["aliases"]))
        built = [ContextualDropout(**description["sites"][name]) for name in change.sites]
        site = nn.ModuleList(built) if change.kind == "between the layers of" else built[0]
        parameter = next(model.parameters(), None)
        PLACEMENTS[change.kind].attach(model, change.name, site if parameter is None else site.to(parameter.device))
        for alias in change.aliases:
            if change.kind == "in place of":
                model.set_submodule(alias, site)
        changes.append(change)
    setattr(model, RECORD, Conversion(changes))


def _compare(found: dict[str, ContextualDropout], saved: dict[str, Any], path: str | os.PathLike[str]) -> None:
    problems = [f"{name}: in the file but not in the model" for name in saved if name not in found]
    problems += [f"{name}: in the model but not in the file" for name in found if name not in saved]
    for name in found.keys() & saved.keys():
        here, there = found[name].config, saved[name]
        different = (key for key in ("features", "family", "dim", "reduction") if here[key] != there[key])
        problems += [f"{name}: {key} is {here[key]} here, {there[key]} in the file" for key in different]
    if problems:
        raise ValueError("\n  ".join([f"{path} does not fit the model:", *sorted(problems)]))
