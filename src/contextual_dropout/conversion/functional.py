"""Dropout that is called as a function, ``F.dropout(x, p, self.training)``, as sites.

No module is there that a site could replace: so a call is known by the module whose call is running, and by its number
among the calls there. The class of a module with such sites is changed to one that runs the module in a torch function
mode, which hands the calls to the sites. Its parameters, attributes, hooks and forward stay as they are.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Iterable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contextual_dropout.conversion.calls import FUNCTIONS, SOFTMAX, ModuleCalls, running
from contextual_dropout.conversion.record import CHILD
from contextual_dropout.conversion.widths import with_a_site_per_width
from contextual_dropout.nn.attention_dropout import AttentionTensors, masked_attention
from contextual_dropout.nn.site import ContextualDropout, LazyContextualDropout

__all__ = [
    "CallsMixin",
    "SitePerCall",
    "attach_calls",
    "class_obstacle",
    "detach_calls",
    "sites_for_calls",
    "weights_options",
]


class SitePerCall(nn.ModuleDict):
    """The sites of a module's calls, as ``"call_1_of_2"``, or ``"weights_1_of_2"`` where it is on attention weights."""

    @property
    def numbers(self) -> dict[int, str]:
        """The names of the sites by the number of the call."""
        return {int(key.split("_")[1]): key for key in self}

    @property
    def calls(self) -> int:
        """The number of calls, those without a site included."""
        return max(int(key.split("_")[3]) for key in self)


def sites_for_calls(found: ModuleCalls, options: dict[str, Any]) -> tuple[SitePerCall, dict[str, str]]:
    """Build a site for each call that can have one, and say why others have none, by "call 1 of 2"."""
    total = len(found.calls)
    if not found.stable:
        return SitePerCall(), {"calls": "their number or their rates are not the same each time: use nn.Dropout layers"}
    sites, left = {}, {}
    for number, call in enumerate(found.calls, 1):
        rate = options.get("p", call.p)
        reason = call.obstacle or (None if 0 < rate < 1 else f"its drop rate is {rate:g}; give p= to convert it")
        if call.weights and options.get("attention_context") == "queries":
            reason = reason or "the queries of these attention weights are not known: use another attention_context="
        if reason:
            left[f"call {number} of {total}"] = reason
            continue
        settings = {"dim": call.dim, "p": call.p} | (weights_options(options) if call.weights else options)
        site = with_a_site_per_width(LazyContextualDropout(**settings), found.shapes(number - 1))
        sites[f"{'weights' if call.weights else 'call'}_{number}_of_{total}"] = site
    return SitePerCall(sites), left


def weights_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options for a site on attention weights (B, H, N_Q, N_K) that is given its context."""
    axes = {"dim": 1, "batch_dim": (0, 2) if options.get("positions") == "own" else 0, "pooling": "mean"}
    return {name: value for name, value in options.items() if name != "positions"} | axes


def attach_calls(module: nn.Module, sites: nn.Module) -> None:
    """Hand a module's calls of dropout to sites."""
    module.add_module(CHILD, sites)
    module.__class__ = _with_calls(type(module))


def detach_calls(module: nn.Module) -> None:
    """Undo :func:`attach_calls`."""
    delattr(module, CHILD)
    module.__class__ = cast("type[CallsMixin]", type(module)).plain


class _InPlaceOfCalls(TorchFunctionMode):
    """A mode that hands the calls of dropout in a module's call to its sites."""

    def __init__(self, sites: SitePerCall) -> None:
        super().__init__()
        self.sites, self.numbers, self.calls = sites, sites.numbers, 0
        self.scores: Tensor | None = None

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SOFTMAX:
            self.scores = args[0] if args else kwargs["input"]
        if func not in FUNCTIONS or _running_mode() is not self:
            return func(*args, **kwargs)
        self.calls += 1
        key = self.numbers.get(self.calls)
        if key is None:
            return func(*args, **kwargs)
        x = args[0] if args else kwargs["input"]
        return self._weighted(x, self.sites[key]) if key.startswith("weights") else self.sites[key](x)

    def _weighted(self, weights: Tensor, site: nn.Module) -> Tensor:
        assert isinstance(site, ContextualDropout)
        if self.scores is None:
            raise RuntimeError("dropout on attention weights has no softmax before it, unlike at the conversion")
        scores = self.scores[..., : weights.shape[-1]]
        return masked_attention(site, AttentionTensors(weights, scores, scores))  # no site here reads the queries

    def check(self, module: nn.Module) -> None:
        """Raise if the number of calls is not that of the conversion."""
        if self.calls != self.sites.calls:
            raise RuntimeError(
                f"{type(module).__name__} called dropout as a function {self.calls} times, {self.sites.calls} times "
                f"when it was converted, so that calls cannot be matched with sites. Leave it out with "
                f"cd.contextualize(model, exclude={type(module).__name__}), or use nn.Dropout layers in it"
            )


def _running_mode() -> _InPlaceOfCalls | None:
    """The mode of the innermost call of a module that is running, if that module has one."""
    frame = running(sys._getframe())
    caller = None if frame is None else frame.f_back
    if caller is None or caller.f_code is not _call_with_sites.__code__:
        return None
    return cast("_InPlaceOfCalls", caller.f_locals["mode"])


def _call_with_sites(self: CallsMixin, *args: Any, **kwargs: Any) -> Any:
    sites = getattr(self, CHILD, None)
    if not isinstance(sites, SitePerCall):  # a new object of this class
        return super(CallsMixin, self)._call_impl(*args, **kwargs)  # type: ignore[misc]
    with _InPlaceOfCalls(sites) as mode:
        out = super(CallsMixin, self)._call_impl(*args, **kwargs)  # type: ignore[misc]
    mode.check(cast("nn.Module", self))
    return out


class CallsMixin:
    """A mixin for the class of a module with sites for its calls.

    The mode is on inside of ``__call__``, whatever that does in the module's class: activation checkpointing of
    ``transformers`` calls what is below it once more in the backward pass. ``torch.compile`` leaves the module as it
    is, since it cannot tell whose call it is in: what the module calls runs uncompiled.
    """

    plain: ClassVar[type[nn.Module]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = super().__reduce_ex__(protocol)
        if isinstance(reduced, tuple) and reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
            return _renewed, (type(self).plain, *reduced[1][1:]), *reduced[2:]
        return reduced


_CLASSES: dict[type[nn.Module], type[nn.Module]] = {}


def _with_calls(plain: type[nn.Module]) -> type[nn.Module]:
    """A class like this one, with the same name, whose modules have sites for their calls."""
    if plain not in _CLASSES:
        named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
        metaclass: Any = type(plain)
        added = {"plain": plain, "_call_impl": torch.compiler.disable(_call_with_sites)}  # type: ignore[no-untyped-call]
        _CLASSES[plain] = metaclass(plain.__name__, (CallsMixin, plain), named | added)
    return _CLASSES[plain]


def class_obstacle(module: nn.Module) -> str | None:
    """The reason why a module's class cannot be changed to such a class, if there is one."""
    kind = type(module)
    if hasattr(kind, "__deepcopy__") or kind.__reduce__ is not object.__reduce__:  # copies would lose their sites
        return f"{kind.__name__} copies itself in its own way"
    try:
        _with_calls(kind)
    except Exception as error:
        return f"no class can inherit from {kind.__name__} ({error!r})"
    return None


def _renewed(plain: type[nn.Module], *args: Any) -> nn.Module:
    kind = _with_calls(plain)
    made: nn.Module = kind.__new__(kind, *args)
    return made
