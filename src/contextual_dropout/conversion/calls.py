"""Finding dropout that is called as a function, in a pass of a plain network.

A call is known by the module whose call is running, and by its number among the calls there.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

__all__ = ["FUNCTIONS", "SOFTMAX", "CallSearch", "DropoutCall", "ModuleCalls", "mentions_dropout", "running"]

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
class DropoutCall:
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
        """The reason why it cannot become a site, if there is one."""
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
                f"its input, of shape {self.shape}, looks like attention weights, which say nothing about the sample "
                "when they are pooled: use contextual_dropout.nn.attention_dropout.AttentionDropout, which is given "
                "the scores"
            )
        return None


class ModuleCalls:
    """The calls of dropout in one module, from all its runs: known by their number, if that is always the same.

    Attributes:
        runs: the calls of each time that it ran and called any.
        times: how often it ran in all, where that is known.
    """

    def __init__(self) -> None:
        self.runs: list[list[DropoutCall]] = []
        self.times: int | None = None

    @property
    def stable(self) -> bool:
        """Whether the module calls the same functions with the same rates each time."""
        each = {tuple((call.dim, call.p, call.weights) for call in run) for run in self.runs}
        return len(each) == 1 and self.times in (None, len(self.runs))

    @property
    def calls(self) -> list[DropoutCall]:
        """The calls of the first time that the module ran."""
        return self.runs[0]

    def shapes(self, number: int) -> list[tuple[int, ...]]:
        """The shapes of the inputs of one of the calls, over all runs."""
        return [run[number].shape for run in self.runs]


class CallSearch(TorchFunctionMode):
    """A mode that notes every call of dropout as a function, except those of dropout layers."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[FrameType, list[DropoutCall]] = {}
        self._scores: dict[FrameType, Tensor] = {}

    def result(self) -> dict[nn.Module, ModuleCalls]:
        """Return the modules with their calls, and forget them: it can be called once."""
        found: dict[nn.Module, ModuleCalls] = {}
        for frame, calls in self._runs.items():
            found.setdefault(frame.f_locals["self"], ModuleCalls()).runs.append(calls)
        self._runs.clear()  # frames refer to their callers, which have this object
        self._scores.clear()
        return found

    def __torch_function__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SOFTMAX:
            frame = running(sys._getframe())
            while frame is not None:
                self._scores[frame] = args[0] if args else kwargs["input"]
                frame = running(frame.f_back)
        elif func in FUNCTIONS:
            self._note(running(sys._getframe()), func, args, kwargs)
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
        call = DropoutCall(FUNCTIONS[func], rate, bool(on), inplace, shape, weights, known)
        self._runs.setdefault(frame, []).append(call)


def running(frame: FrameType | None) -> FrameType | None:
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


def mentions_dropout(module: nn.Module) -> bool:
    """Whether the code of a module's forward mentions dropout as a function, reached or not."""
    forward: Any = inspect.unwrap(type(module).forward)
    code, value = getattr(forward, "__code__", None), None
    if (
        code is None
        or isinstance(module, _DropoutNd)
        or type(module).__module__.startswith(("torch.", "contextual_dropout."))
    ):
        return False
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            value = forward.__globals__.get(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, ModuleType):
            value = getattr(value, step.argval, None)
        else:
            value = None
        if any(value is function for function in FUNCTIONS):
            return True
    return False
