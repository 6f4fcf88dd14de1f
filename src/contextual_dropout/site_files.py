"""Files of sites, as what they say of themselves: nothing is believed of it before it is checked. No pickle."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from typing import Any

import safetensors
import torch
from torch import Tensor

from contextual_dropout.conversion.report import Change
from contextual_dropout.site import ContextualDropout

__all__ = ["FORMAT", "OLDER", "build_site", "read_sites"]

FORMAT = "contextual-dropout sites 1"
#: The options that older files do not name, as sites had them then.
OLDER: dict[str, Any] = {"folded": False, "pooling": "mean"}


def read_sites(
    path: str | os.PathLike[str],
) -> tuple[dict[str, dict[str, Any]], dict[str, list[Change]], dict[str, Tensor]]:
    """Configurations by site, changes by converted part, and tensors of a file."""
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
    """Priors were scalars once."""
    return tensor.reshape(1) if name.endswith("prior_logit") and tensor.ndim == 0 else tensor


def _change(entry: dict[str, Any]) -> tuple[str, Change]:
    """A converted part, and what was done to a module of it."""
    names = tuple(entry["sites"]), tuple(entry["aliases"])
    part, change = entry.get("part", ""), Change(entry["name"], entry["kind"], str(entry["module"]), *names)
    if not all(isinstance(text, str) for text in (part, change.name, change.kind, *change.sites, *change.aliases)):
        raise TypeError("names must be strings")
    return part, change


def build_site(
    name: str, config: dict[str, Any], tensors: dict[str, Tensor], path: str | os.PathLike[str]
) -> ContextualDropout:
    """A site with the options of a file; it takes memory only if the file has tensors of its sizes."""
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
