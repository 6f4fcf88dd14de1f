"""Sites on the attention weights of Hugging Face models, through the attention interface of ``transformers``.

The models call their attention by name, and apply its dropout as a function, where no module could be replaced. Here a
name is registered for each model's own eager attention, run under a mode that gives the weights to the site at the
place where that function would drop them. Scores, masks, position biases and all else stay the model's own.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contextual_dropout.nn.attention_dropout import AttentionTensors, masked_attention, warn_if_causal
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["IMPLEMENTATION", "attention_drop_rate", "is_attention", "rate_holder", "remove_site", "use_site"]

#: The attention implementation in a converted model's configuration.
IMPLEMENTATION = "contextual_dropout"
#: The attributes in which an attention module keeps its site and the implementation that was used before.
SITE, BEFORE = "contextual_dropout", "contextual_dropout_before"
#: The attributes for the hook that tells cross- from self-attention, and for its finding in the last call.
HOOK, CROSS = "contextual_dropout_hook", "contextual_dropout_cross"
#: The names that attention modules give a sequence to attend to that is not their own.
OTHERS = ("key_value_states", "encoder_hidden_states", "cross_attention_states")
#: The names under which attention modules, or else their configurations, have the rate of the dropout on the weights,
#: as a number or in a dropout layer; the name that may mean another dropout comes last.
RATES = (
    *("attention_dropout", "attn_dropout", "attn_drop", "attention_probs_dropout_prob"),
    *("dropout_prob", "dropout_p", "dropout"),
)


def is_attention(module: nn.Module) -> bool:
    """Whether a module's forward asks the attention interface of ``transformers`` for its attention."""
    if "transformers" not in sys.modules or not hasattr(module, "config"):
        return False
    return "ALL_ATTENTION_FUNCTIONS" in _names_in_forward(module)


def attention_drop_rate(module: nn.Module) -> float | None:
    """The rate of the dropout on the weights: 0 where there is none, None where its name is unknown."""
    found = _rate(module)
    if found is not None:
        return float(getattr(found, "p", found))
    return None if "training" in _names_in_forward(module) else 0.0


def rate_holder(module: nn.Module) -> nn.Module | None:
    """The dropout layer of an attention module that is never called: the module only reads its rate."""
    found = _rate(module)
    return found if isinstance(found, nn.Module) else None


def _rate(module: nn.Module) -> Any:
    """The object from which the module's forward reads the rate: a number, or a layer that has it."""
    names = [name for name in RATES if name in _names_in_forward(module)]
    found = (getattr(holder, name, None) for name in names for holder in (module, module.config))
    return next((each for each in found if isinstance(getattr(each, "p", each), int | float)), None)


def _names_in_forward(module: nn.Module) -> tuple[str, ...]:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return () if code is None else code.co_names


def use_site(model: nn.Module, module: nn.Module, site: nn.Module) -> None:
    """Send the attention weights of a module of a ``transformers`` model through a site."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    AttentionInterface.register(IMPLEMENTATION, contextual_attention)
    AttentionMaskInterface.register(IMPLEMENTATION, eager_mask)
    siblings = [other for other in model.modules() if is_attention(other) and other.config is module.config]
    before = next((vars(other)[BEFORE] for other in siblings if BEFORE in vars(other)), None)
    vars(module)[BEFORE] = before or module.config._attn_implementation  # type: ignore[union-attr]
    module.config._attn_implementation_internal = IMPLEMENTATION  # type: ignore[union-attr]
    vars(module)[HOOK] = module.register_forward_pre_hook(_note_cross_attention, with_kwargs=True)
    module.add_module(SITE, site)


def remove_site(model: nn.Module, module: nn.Module) -> None:
    """Undo :func:`use_site`; the model gets its old attention back with the removal of the last site."""
    delattr(module, SITE)
    vars(module).pop(HOOK).remove()
    vars(module).pop(CROSS, None)
    before = vars(module).pop(BEFORE)
    config: Any = module.config
    if not any(BEFORE in vars(other) for other in model.modules() if getattr(other, "config", None) is config):
        config._attn_implementation_internal = before


def _note_cross_attention(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note whether this call attends to another sequence, which the attention interface is not given."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    vars(module)[CROSS] = any(given.get(name) is not None for name in OTHERS)


def contextual_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Run a model's own eager attention, with its dropout replaced by the module's site if it has one.

    Args:
        module: the attention module that calls.
        query: (B, H, N_Q, d).
        key: (B, H or fewer, N_K, d).
        value: as ``key``.
        attention_mask: (B, 1, N_Q, N_K), added to the scores; very negative where a query may not look.
        options: of the model's attention.
    """
    eager = _eager(module)
    site = getattr(module, SITE, None)
    if not isinstance(site, ContextualDropout):
        result: tuple[Tensor, Tensor | None] = eager(module, query, key, value, attention_mask, **options)
        return result
    padded = None if vars(module).get(CROSS) else _padded(attention_mask, query.shape[-2])
    masked = attention_mask is not None
    mode = _InPlaceOfDropout(site, query, padded, masked)  # not "with … as": Dynamo would not know its attributes
    with mode:
        result = eager(module, query, key, value, attention_mask, **options)
    if not mode.calls:
        raise RuntimeError(
            f"the eager attention of {type(module).__name__} calls no dropout that a site could replace: "
            f"leave it out with cd.contextualize(model, exclude={type(module).__name__})"
        )
    return result


class _InPlaceOfDropout(TorchFunctionMode):
    """A mode that replaces ``F.dropout`` on the last softmax's output by a site."""

    def __init__(self, site: ContextualDropout, queries: Tensor, padded: Tensor | None, masked: bool) -> None:
        super().__init__()
        self.site, self.queries, self.padded, self.masked = site, queries, padded, masked
        self.scores: Tensor | None = None
        self.calls = 0

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (F.softmax, torch.softmax, Tensor.softmax):
            self.scores = args[0] if args else kwargs["input"]
        if func is not F.dropout or self.scores is None:
            return func(*args, **kwargs)
        self.calls += 1
        weights = args[0] if args else kwargs["input"]
        # Some models softmax a sink with the keys, and cut it off.
        scores: Tensor = self.scores[..., : weights.shape[-1]]
        if self.masked:
            warn_if_causal(self.site, scores)
        return masked_attention(self.site, AttentionTensors(weights, scores, self.queries, self.padded))


def _padded(mask: Tensor | None, queries: int) -> Tensor | None:
    """Positions (B, N_Q) that no query may look at: padding, where queries and keys are the same positions."""
    if mask is None or mask.shape[-1] != queries or mask.shape[-2] != queries:
        return None
    forbidden = ~mask if mask.dtype is torch.bool else mask < torch.finfo(mask.dtype).min / 2
    return forbidden.all(-2).any(1)  # over queries; the second axis is one for all heads


def _eager(module: nn.Module) -> Callable[..., Any]:
    """The plain attention function of the file that defines the module's class, or a class it inherits from."""
    for kind in type(module).__mro__:
        function = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if function is not None:
            return function  # type: ignore[no-any-return]
    raise RuntimeError(f"{type(module).__name__} has no eager attention next to it: exclude it from the conversion")
