"""Switching on dropout that is called as a function: no module's mode can, a torch function mode can.

``F.dropout(x, p, self.training)`` is off wherever the network around it is in eval mode. Inside
:func:`contextual_dropout.sampling` and :func:`contextual_dropout.predict` every call of a dropout function samples,
whatever its flag says: a flag that follows the module is False there, as a constant would be, and dropout that is
always off would be useless.

This does not reach functions that the network does not call in eval mode, as in ``if self.training: x = F.dropout(x)``,
or calls with another rate then, as in ``dropout_p=self.p if self.training else 0.0``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

__all__ = ["SAMPLED", "FunctionalDropout", "switched_on"]

_FUNCTIONS = (
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    F.multi_head_attention_forward,
)
_BUILTINS = (
    *(torch.dropout, torch.alpha_dropout, torch.feature_dropout, torch.feature_alpha_dropout, torch.native_dropout),
    *(torch.dropout_, torch.alpha_dropout_, torch.feature_dropout_, torch.feature_alpha_dropout_),
)
#: The position and the name of each function's flag.
_FLAG: dict[Any, tuple[int, str]] = {
    **{
        function: (list(inspect.signature(function).parameters).index("training"), "training")
        for function in _FUNCTIONS
    },
    **dict.fromkeys(_BUILTINS, (2, "train")),
}


def switched_on(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with the flag of a dropout function on.

    Example:
        >>> switched_on(F.dropout, (0, 0.5, False), {})
        ((0, 0.5, True), {})
        >>> switched_on(F.relu, (0,), {"inplace": False})
        ((0,), {'inplace': False})
    """
    flag = _FLAG.get(func)
    if flag is None:
        return args, kwargs
    place, name = flag
    if len(args) > place:
        return (*args[:place], True, *args[place + 1 :]), kwargs
    return args, {**kwargs, name: True}


class FunctionalDropout(TorchFunctionMode):
    """A mode in which dropout functions sample."""

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = switched_on(func, args, kwargs or {})
        return func(*args, **kwargs)


#: One object for all: it has no state, and code is compiled again for each new mode.
SAMPLED = FunctionalDropout()
