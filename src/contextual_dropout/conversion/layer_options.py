"""The options of every layer: the user's choice, and the consequences of how the network is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import nn

from contextual_dropout.conversion.causality import causal_by_construction
from contextual_dropout.conversion.contexts import follows_instance_norm
from contextual_dropout.conversion.functional import weights_options
from contextual_dropout.nn.attention_dropout import AttentionDropout

__all__ = ["LayerOptions", "Positions", "layer_options"]

Positions = Literal["own", "pooled"]


@dataclass(frozen=True)
class LayerOptions:
    """The options with which the sites of one layer are built.

    Attributes:
        build: options of its sites, as long as no example says otherwise.
        positions: whether positions have their own rates or are pooled; None where only an example can tell.
        doubtful: whether they are pooled though the layer may belong to a causal part.
        unseen: whether nothing in the network's construction tells.
        chosen: the names of the options that the user gave.
    """

    build: dict[str, Any]
    positions: Positions | None
    doubtful: bool
    unseen: bool
    chosen: frozenset[str]


def layer_options(model: nn.Module, settings_of: Mapping[str, Mapping[str, Any]]) -> dict[str, LayerOptions]:
    """Complete the user's options for each layer, by the layers' names."""
    causal = causal_by_construction(model, settings_of)
    result: dict[str, LayerOptions] = {}
    for name, settings in settings_of.items():
        build = {key: value for key, value in settings.items() if key != "positions"}
        positions: Positions | None = _checked(settings.get("positions"))
        if positions is None and ("batch_dim" in build or build.get("encoder") == "global"):
            positions = "pooled"  # the user has chosen the axes, or nothing that could come later is read
        doubtful = positions is None and causal[name] == "unknown"
        if positions is None and causal[name] == "causal":
            positions = "own"
        chosen = frozenset(build)
        likely = positions is None and causal[name] == "likely"
        if (positions == "own" or likely) and "batch_dim" not in chosen:
            build["positions"] = "own"
            if name and isinstance(model.get_submodule(name.rpartition(".")[0]), AttentionDropout):
                build = weights_options(build)
        if "pooling" not in chosen and follows_instance_norm(model, name):
            build["pooling"] = "mean-deviation"
        unseen = positions is None and causal[name] == "open"
        result[name] = LayerOptions(build, positions, doubtful, unseen, chosen)
    return result


def _checked(positions: Any) -> Any:
    if positions is not None and positions not in get_args(Positions):
        raise ValueError(
            f"positions must be 'own', 'pooled' or None (own where the network is causal), got {positions!r}"
        )
    return positions
