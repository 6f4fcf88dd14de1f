"""Running networks whose rows are known not to interact: k samples of B examples are then simply k B examples.

That is the fastest way to run many samples, and wrong for any network in which one row can see another. So it needs a
proof, and the one that costs next to nothing is that of structure: an ``nn.Sequential``, however nested, of layers that
are known to treat each row by itself. Exact types only, without hooks, and with ordinary parameters: whatever could do
more than the layer's documentation says is left to the other ways (:mod:`contextual_dropout.prediction.passes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from types import NoneType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.nn.encoder import Encoder
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["FoldedChain", "folded"]


def _always(layer: Any) -> bool:
    return True


def _keeps_rows(layer: Any) -> bool:
    """Whether a flattening starts at the second axis, so that (B, ...) stays (B, ...)."""
    return bool(layer.start_dim >= 1 and (layer.end_dim == -1 or layer.end_dim >= 1))


def _within_rows(layer: Any) -> bool:
    """Whether a softmax is over another axis than the first; a negative axis could be the first."""
    return layer.dim is not None and (layer.dim >= 1 or layer.dim == -1)


def _by_running_statistics(layer: Any) -> bool:
    return not layer.training and layer.running_mean is not None


def _one_mask_per_row(layer: Any) -> bool:
    return layer.batch_dims[0] == 0 and layer.dim != 0 and type(layer.encoder) is Encoder


_Layers = tuple[type[nn.Module], ...]
_ELEMENTWISE: _Layers = (
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid),
)
_CONVOLUTIONS: _Layers = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_POOLS: _Layers = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)
_DROPOUT: _Layers = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout),
)
#: Layers that treat each row by itself, and the condition for it. Those that would mix rows of inputs *without* a batch
#: axis (a convolution's channels, say) do not accept k times as many: the error sends us another way.
ROWWISE: dict[type[nn.Module], Callable[[Any], bool]] = {
    **dict.fromkeys((*_ELEMENTWISE, *_CONVOLUTIONS, *_POOLS, *_DROPOUT), _always),
    **dict.fromkeys((nn.Linear, nn.LayerNorm, nn.GroupNorm), _always),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _by_running_statistics),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax), _within_rows),
    nn.Flatten: _keeps_rows,
    ContextualDropout: _one_mask_per_row,
}


class FoldedChain:
    """A chain of layers, run on many samples at once; what comes before its first random layer is computed once.

    Args:
        layers: of :data:`ROWWISE`.
        x: (B, ...), may be changed in place.
    """

    def __init__(self, layers: list[nn.Module], x: Tensor) -> None:
        prefix = list(takewhile(lambda layer: not _draws(layer), layers))
        for layer in prefix:
            x = layer(x)
        self._features = x
        self._suffix = layers[len(prefix) :]
        first = self._suffix[0] if self._suffix else None
        self._logits = first.logits(x) if isinstance(first, ContextualDropout) else None

    @property
    def random(self) -> bool:
        """Whether any layer draws random numbers."""
        return bool(self._suffix)

    def run(self, samples: int) -> Tensor:
        """The outputs of ``samples`` passes, (k, B, ...); of one pass, (1, B, ...), where nothing is random."""
        if not self._suffix:
            return self._features.unsqueeze(0)
        rows, examples = _repeated(self._features, samples), len(self._features)  # (k B, ...)
        if getattr(self._suffix[0], "inplace", False):
            rows = rows.clone()
        logits = None if self._logits is None else _repeated(self._logits, samples)
        for layer in self._suffix:
            if isinstance(layer, ContextualDropout):
                rows = _masked(layer, rows, logits)
            elif type(layer) is nn.Dropout and _draws(layer):
                rows = _dropped(rows, layer.p)
            else:
                rows = layer(rows)
            logits = None
        if len(rows) != samples * examples:
            raise RuntimeError("the rows of the output are not those of the input")
        return rows.reshape(samples, examples, *rows.shape[1:])


def folded(model: Any, x: Any) -> FoldedChain | None:
    """The model as a chain of layers, if it is one whose rows do not interact and if ``x`` has rows."""
    if type(x) is not Tensor or x.ndim < 2 or x.layout is not torch.strided or x.is_nested:
        return None
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return None
    layers = list(_leaves(model))
    return FoldedChain(layers, x) if all(map(_is_rowwise, layers)) else None


def _leaves(model: Any) -> Iterator[Any]:
    """The layers of nested ``nn.Sequential``, in call order."""
    if type(model) is nn.Sequential and not _altered(model):
        for child in model:
            yield from _leaves(child)
    else:
        yield model


def _is_rowwise(layer: Any) -> bool:
    condition = ROWWISE.get(type(layer))
    if condition is None:
        return False
    parts = layer.modules() if layer._modules else (layer,)
    return condition(layer) and not any(map(_altered, parts))


def _altered(module: nn.Module) -> bool:
    """Whether a call may do something else than the class documents."""
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        return True
    return any(type(parameter) not in (nn.Parameter, NoneType) for parameter in module._parameters.values())


def _draws(layer: nn.Module) -> bool:
    if isinstance(layer, ContextualDropout):
        return layer.stochastic
    return isinstance(layer, _DropoutNd) and layer.training and 0 < layer.p < 1


def _masked(site: ContextualDropout, u: Tensor, logits: Tensor | None) -> Tensor:
    return site.sampled(u, site.logits(u) if logits is None else logits)


def _dropped(u: Tensor, p: float) -> Tensor:
    """Ordinary dropout, with masks by comparison, as sites have them: torch's own are three times as slow on a CPU."""
    if u.device.type != "cpu" or u.dtype not in (torch.float32, torch.float64):
        return F.dropout(u, p)
    return torch.rand_like(u).lt_(1 - p).mul_(u).div_(1 - p)


def _repeated(features: Tensor, samples: int) -> Tensor:
    """(B, ...) to (k B, ...), to be read only."""
    return features.expand(samples, *features.shape).flatten(0, 1)
