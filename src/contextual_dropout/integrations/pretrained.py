"""Saving a converted model of ``transformers``: the plain model in its usual files, and the sites beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.hub import cached_file

from contextual_dropout.conversion.saving import load_sites, save_sites
from contextual_dropout.nn.site import ContextualDropout
from contextual_dropout.replay.generators import preserved

__all__ = ["SITES", "from_pretrained", "load_weights", "plain_weights", "save_pretrained"]

#: The file of the sites.
SITES = "sites.safetensors"
#: The options of ``from_pretrained`` that say where a file is.
_WHERE = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")
Model = TypeVar("Model", bound=PreTrainedModel)
Folder = str | os.PathLike[str]


def save_pretrained(model: PreTrainedModel, folder: Folder, **options: Any) -> None:
    """Save a converted model: configuration and weights, which load without this library, and :data:`SITES`.

    Args:
        model: with sites.
        folder: made if it is not there.
        options: of the model's own ``save_pretrained``.
    """
    model.save_pretrained(folder, state_dict=plain_weights(model), **options)
    save_sites(model, Path(folder, SITES))


def from_pretrained(folder: Folder, kind: Any, **options: Any) -> Any:
    """Load a folder of :func:`save_pretrained`, or a checkpoint of the trainer, with its sites.

    Args:
        folder: or the name of a repository on the hub.
        kind: ``AutoModelForSequenceClassification``, for instance, or the model's class.
        options: of its ``from_pretrained``.

    Returns:
        The model with its sites, in eval mode.

    Raises:
        OSError: the model, or :data:`SITES` beside it, is missing.
    """
    try:
        path = cached_file(folder, SITES, **{name: options[name] for name in _WHERE if name in options})
    except OSError as error:
        raise OSError(
            f"{folder} has no {SITES}: it holds a plain model (load that with {kind.__name__}.from_pretrained), or was "
            "not saved by contextual_dropout.integrations.transformers"
        ) from error
    model = kind.from_pretrained(folder, **options)
    return load_sites(model, str(path))


def load_weights(model: PreTrainedModel, folder: Folder) -> None:
    """Fill a converted model with the weights and the sites of a folder.

    Through ``from_pretrained``: the file has the names of the hub, which may differ from those of the modules.

    Raises:
        ValueError: the folder holds another model.
    """
    with preserved():
        saved = type(model).from_pretrained(folder).state_dict()
    here = plain_weights(model).keys()
    if different := here ^ saved.keys():
        raise ValueError(
            f"the model in {folder} is another one: only one of the two has {', '.join(sorted(different))}"
        )
    model.load_state_dict(saved, strict=False)
    load_sites(model, Path(folder, SITES))


def plain_weights(model: nn.Module, weights: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The state of a model, or ``weights``, without the parameters of its sites.

    Example:
        >>> import contextual_dropout as cd
        >>> list(plain_weights(nn.Sequential(nn.Linear(2, 3), cd.ContextualDropout(3))))
        ['0.weight', '0.bias']
    """
    named = model.named_modules(remove_duplicate=False)
    sites = tuple(f"{name}." for name, module in named if isinstance(module, ContextualDropout))
    state = model.state_dict() if weights is None else weights
    return {name: value for name, value in state.items() if not name.startswith(sites)}
