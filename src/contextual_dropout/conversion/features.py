"""Finding the axis of the features in a tensor: the layer that made it knows."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.hooks import RemovableHandle

from contextual_dropout.conversion.placement import CONVOLUTIONS

__all__ = ["LayerBefore"]

#: The axis in which layers put their features.
FEATURES: dict[type[nn.Module], int] = {
    **CONVOLUTIONS,
    **dict.fromkeys((nn.Linear, nn.Embedding, nn.LayerNorm), -1),
    **dict.fromkeys((_NormBase, nn.GroupNorm), 1),
}


class LayerBefore:
    """Watches a model's layers in a pass: a tensor that looks like the last one's output has its features there."""

    def __init__(self) -> None:
        self._last: tuple[int, tuple[int, ...]] | None = None

    def watch(self, model: nn.Module) -> list[RemovableHandle]:
        """Put hooks on all layers whose axis of the features is known."""
        known = (module for module in model.modules() if isinstance(module, tuple(FEATURES)))
        return [module.register_forward_hook(self._note) for module in known]

    def axis(self, u: Tensor) -> int | None:
        """The axis of the features, if it is known."""
        return None if self._last is None or self._last[1] != u.shape else self._last[0] % u.ndim

    def _note(self, module: nn.Module, args: Any, output: Any) -> None:
        axis = next(axis for kind, axis in FEATURES.items() if isinstance(module, kind))
        self._last = (axis, tuple(output.shape)) if isinstance(output, Tensor) else None
