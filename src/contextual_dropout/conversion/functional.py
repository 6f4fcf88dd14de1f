"""Dropout that is called as a function, ``F.dropout(x, p, self.training)``, as sites.

There is no module that a site could take the place of: so a call is known by the module whose call is running, and by
its number among the calls there. A module with such sites takes on a class that runs its own in a torch function mode,
which hands the calls to the sites. Its parameters, attributes, hooks and forward stay as they are.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from contextual_dropout.attention import Attended, masked_attention
from contextual_dropout.conversion.report import CHILD
from contextual_dropout.conversion.widths import with_a_site_per_width
from contextual_dropout.site import ContextualDropout, LazyContextualDropout

__all__ = ["Call", "Calls", "Found", "Search", "SitePerCall", "attach_calls", "detach_calls", "sites_for_calls"]

#: The functions, and the axis of the features of each where that does not depend on the input.
FUNCTIONS: dict[Any, int | None] = {
    F.dropout: None,
    F.alpha_dropout: None,
    F.dropout1d: -2,
    F.dropout2d: 1,
    F.dropout3d: -4,
    F.feature_alpha_dropout: 1,
    torch.dropout: None,
    torch.alpha_dropout: None,
    torch.feature_dropout: 1,
    torch.feature_alpha_dropout: 1,
}
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
_CALL = nn.Module._call_impl.__code__


@dataclass(frozen=True)
class Call:
    """One call of dropout as a function.

    Attributes:
        dim: the axis of the features, None where the input decides.
        p: the drop rate.
        always: whether it was on in evaluation mode.
        inplace: whether it was to change its input.
        shape: of the input.
        weights: whether the input was attention weights, and whether it was known what their softmax was given.
    """

    dim: int | None
    p: Any
    always: bool
    inplace: bool
    shape: tuple[int, ...]
    weights: bool = False
    scores: bool = False

    @property
    def obstacle(self) -> str | None:
        """Why it cannot become a site."""
        if not isinstance(self.p, int | float):
            return f"its drop rate is a {type(self.p).__name__}, which may change from call to call"
        if self.always:
            return "it is on in evaluation mode too (training=True): give it training=self.training to convert it"
        if self.inplace:
            return "it works in place: take its result, without inplace=True, to convert it"
        if not self.shape:
            return "its input has no axis"
        if self.weights and not (self.scores and len(self.shape) == 4):
            return (
                f"its input, of shape {self.shape}, looks like attention weights, which say nothing of the sample when "
                "they are pooled: use contextual_dropout.attention.AttentionDropout, which is told the scores"
            )
        return None


class Found:
    """The calls of one module, from all times that it ran: known by their number, if that is always the same.

    Attributes:
        runs: the calls of each time that it ran and called any.
        times: how often it ran in all, where that is known.
    """

    def __init__(self) -> None:
        self.runs: list[list[Call]] = []
        self.times: int | None = None

    @property
    def stable(self) -> bool:
        """Whether the module calls the same functions with the same rates each time."""
        each = {tuple((call.dim, call.p, call.weights) for call in run) for run in self.runs}
        return len(each) == 1 and self.times in (None, len(self.runs))

    @property
    def calls(self) -> list[Call]:
        """Those of the first time."""
        return self.runs[0]

    def shapes(self, number: int) -> list[tuple[int, ...]]:
        """What one of the calls was given."""
        return [run[number].shape for run in self.runs]


class Search(TorchFunctionMode):
    """While it is on, notes every call of dropout as a function, but those of dropout layers."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[FrameType, list[Call]] = {}
        self._scores: dict[FrameType, Tensor] = {}

    @property
    def found(self) -> dict[nn.Module, Found]:
        """The modules with their calls."""
        found: dict[nn.Module, Found] = {}
        for frame, calls in self._runs.items():
            found.setdefault(frame.f_locals["self"], Found()).runs.append(calls)
        return found

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SOFTMAX:
            frame = _running(sys._getframe())
            while frame is not None:
                self._scores[frame] = args[0] if args else kwargs["input"]
                frame = _running(frame.f_back)
        elif func in FUNCTIONS:
            self._note(_running(sys._getframe()), func, args, kwargs)
        return func(*args, **kwargs)

    def _note(self, frame: FrameType | None, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if frame is None or isinstance(frame.f_locals["self"], _DropoutNd):
            return
        x = _argument(0, "input", None, args, kwargs)
        rate, on = _argument(1, "p", 0.5, args, kwargs), _argument(2, "training", True, args, kwargs)
        on = kwargs.get("train", on)  # as torch.dropout calls it
        scores, shape = self._scores.get(frame), tuple(x.shape)
        weights = _is_distribution(x)
        known = weights and scores is not None and scores.shape[:-1] == shape[:-1] and scores.shape[-1] >= shape[-1]
        inplace = bool(_argument(3, "inplace", False, args, kwargs))
        call = Call(FUNCTIONS[func], rate, bool(on), inplace, shape, weights, known)
        self._runs.setdefault(frame, []).append(call)


def _running(frame: FrameType | None) -> FrameType | None:
    """The innermost call of a module that is running, seen from a frame."""
    while frame is not None and frame.f_code is not _CALL:
        frame = frame.f_back
    return frame


def _argument(position: int, name: str, default: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return kwargs.get(name, args[position] if len(args) > position else default)


def _is_distribution(x: Tensor) -> bool:
    """Whether these are attention weights: on more than two axes, and along the last they are positive and sum to 1."""
    if x.ndim < 3 or not x.numel() or not x.is_floating_point():
        return False
    x = x.detach().nan_to_num().float()
    total = x.sum(-1)
    return bool((x >= 0).all() and ((total - 1).abs().minimum(total) < 1e-2).all() and (total > 0.5).any())


class SitePerCall(nn.ModuleDict):
    """The sites of a module's calls, as ``"call_1_of_2"``, or ``"weights_1_of_2"`` where it is on attention weights."""

    @property
    def numbers(self) -> dict[int, str]:
        """The names by the number of the call."""
        return {int(key.split("_")[1]): key for key in self}

    @property
    def calls(self) -> int:
        """How many there are, those without a site included."""
        return max(int(key.split("_")[3]) for key in self)


def sites_for_calls(found: Found, options: dict[str, Any]) -> tuple[SitePerCall, dict[str, str]]:
    """A site for each of the calls that can have one, and why others have none, by "call 1 of 2"."""
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
        settings = {"dim": call.dim, "p": call.p} | options | ({"dim": 1, "batch_dim": 0} if call.weights else {})
        site = with_a_site_per_width(LazyContextualDropout(**settings), found.shapes(number - 1))
        sites[f"{'weights' if call.weights else 'call'}_{number}_of_{total}"] = site
    return SitePerCall(sites), left


def attach_calls(module: nn.Module, sites: nn.Module) -> None:
    """Let a module's calls of dropout go to sites."""
    module.add_module(CHILD, sites)
    module.__class__ = _with_calls(type(module))


def detach_calls(module: nn.Module) -> None:
    """Undo it."""
    delattr(module, CHILD)
    module.__class__ = cast("type[Calls]", type(module)).plain


class _InPlaceOfCalls(TorchFunctionMode):
    """While it is on, the calls of dropout in a module's call go to its sites."""

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
            raise RuntimeError("attention weights without a softmax before them, which there was at the conversion")
        scores = self.scores[..., : weights.shape[-1]]
        return masked_attention(site, Attended(weights, scores, scores))  # no site here reads the queries

    def check(self, module: nn.Module) -> None:
        """Raise if the calls cannot be told apart by their numbers."""
        if self.calls != self.sites.calls:
            raise RuntimeError(
                f"{type(module).__name__} called dropout as a function {self.calls} times, {self.sites.calls} times "
                f"when it was converted: which site is whose cannot be told. Leave it out with "
                f"cd.contextualize(model, exclude={type(module).__name__}), or use nn.Dropout layers in it"
            )


def _running_mode() -> _InPlaceOfCalls | None:
    """The mode of the innermost call of a module that is running, if that module has one."""
    frame = _running(sys._getframe())
    caller = None if frame is None else frame.f_back
    if caller is None or caller.f_code is not _call_with_sites.__code__:
        return None
    return cast("_InPlaceOfCalls", caller.f_locals["mode"])


def _call_with_sites(self: Calls, *args: Any, **kwargs: Any) -> Any:
    sites = getattr(self, CHILD, None)
    if not isinstance(sites, SitePerCall):  # a new object of this class
        return super(Calls, self)._call_impl(*args, **kwargs)  # type: ignore[misc]
    with _InPlaceOfCalls(sites) as mode:
        out = super(Calls, self)._call_impl(*args, **kwargs)  # type: ignore[misc]
    mode.check(cast("nn.Module", self))
    return out


class Calls:
    """Added to the class of a module with sites for its calls.

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
    """A class like this one, also by its name, whose modules have sites for their calls."""
    if plain not in _CLASSES:
        named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
        metaclass: Any = type(plain)
        added = {"plain": plain, "_call_impl": torch.compiler.disable(_call_with_sites)}
        _CLASSES[plain] = metaclass(plain.__name__, (Calls, plain), named | added)
    return _CLASSES[plain]


def _renewed(plain: type[nn.Module], *args: Any) -> nn.Module:
    kind = _with_calls(plain)
    made: nn.Module = kind.__new__(kind, *args)
    return made
