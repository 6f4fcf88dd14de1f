"""The encoder h of a site: pool, bottleneck, logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

__all__ = ["CHANNELS", "ENCODERS", "LAZY_ENCODERS", "Encoder", "EncoderKind", "GlobalLogits", "Pooling", "pool"]

EncoderKind = Literal["bottleneck", "global"]
Initialisation = Literal["he", "zero"]
Pooling = Literal["mean", "mean-deviation"]
#: The number of values that each kind of pooling makes of a channel.
CHANNELS: dict[Pooling, int] = {"mean": 1, "mean-deviation": 2}


def pool(
    u: Tensor, batch_dims: Sequence[int], dim: int, dtype: torch.dtype | None = None, pooling: Pooling = "mean"
) -> Tensor:
    """Average ``u`` over all axes but those of samples, positions and features, F_avepool,d(U) in the paper.

    Args:
        u: any shape with these axes.
        batch_dims: the axis of the samples, then those of positions that are not averaged over.
        dim: the axis of the features.
        dtype: in which to average and return.
        pooling: ``"mean-deviation"`` puts the mean absolute deviation from the mean behind it: after an instance
            normalisation, mean and variance are the same for every sample, the mean absolute deviation is not.

    Returns:
        (B, ..., C) or (B, ..., 2 C); an average over no element (an axis of length 0) is 0.

    Example:
        >>> u = torch.arange(12.0).reshape(1, 3, 2, 2)
        >>> pool(u, [0], 1)
        tensor([[1.5000, 5.5000, 9.5000]])
        >>> pool(u, [0], 1, pooling="mean-deviation")
        tensor([[1.5000, 5.5000, 9.5000, 1.0000, 1.0000, 1.0000]])
    """
    kept = [axis % u.ndim for axis in (*batch_dims, dim)]
    rest = [axis for axis in range(u.ndim) if axis not in kept]
    mean = _average(u, rest, dtype)
    pooled = [mean] if pooling == "mean" else [mean, _average((u - mean).abs(), rest, dtype)]
    order = [sorted(kept).index(axis) for axis in kept]
    parts = [part.squeeze(tuple(rest)).permute(order) for part in pooled]
    return parts[0] if pooling == "mean" else torch.cat(parts, -1)


def _average(u: Tensor, axes: list[int], dtype: torch.dtype | None) -> Tensor:
    """The mean over ``axes``, which stay as axes of length one."""
    if not axes:
        return u if dtype is None else u.to(dtype)
    elements = math.prod([u.shape[axis] for axis in axes])  # of a list: Dynamo takes no generator
    return u.mean(axes, keepdim=True, dtype=dtype) if elements else u.sum(axes, keepdim=True, dtype=dtype)


class Encoder(nn.Module):
    """t h: (..., C) -> (..., C), two linear layers around a bottleneck (Section 2.3 of the paper).

    ``alpha = Phi_2 F_NL(Phi_1 x)`` with Phi_1: C_context -> W, Phi_2: W -> C and W = C_context // gamma.
    Where there are no more than gamma channels (the heads of an attention layer, say) they are not reduced, as in the
    paper's networks. The output is the natural logit ``t * alpha``.

    Args:
        features: C, the number of logits.
        context_features: the number of channels that the encoder reads.
        reduction: gamma.
        temperature: t.
        initial_logit: the output where the weights contribute nothing; the last layer's bias is that over t.
        negative_slope: of the leaky ReLU; 0 is a ReLU.
        initialisation: ``"he"`` (the paper's) or ``"zero"`` (last layer's weights zero: every input starts
            with the same logit, and the gradient still reaches the last layer at once).
    """

    reduce_weight: nn.Parameter
    reduce_bias: nn.Parameter
    expand_weight: nn.Parameter
    expand_bias: nn.Parameter

    def __init__(
        self,
        features: int,
        context_features: int,
        *,
        reduction: int,
        temperature: float,
        initial_logit: float,
        negative_slope: float = 0.1,
        initialisation: Initialisation = "he",
    ) -> None:
        super().__init__()
        self.features = features
        self.context_features = context_features
        self.reduction = reduction
        self.temperature = temperature
        self.initial_logit = initial_logit
        self.negative_slope = negative_slope
        self.initialisation = initialisation
        for name, shape in self.shapes().items():
            setattr(self, name, nn.Parameter(torch.empty(shape)))
        self.reset_parameters()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters and their shapes."""
        few = self.context_features <= self.reduction
        width = self.context_features if few else self.context_features // self.reduction
        return {
            "reduce_weight": (width, self.context_features),
            "reduce_bias": (width,),
            "expand_weight": (self.features, width),
            "expand_bias": (self.features,),
        }

    def reset_parameters(self) -> None:
        """Draw new weights and set the biases to the initial logit."""
        nn.init.kaiming_normal_(self.reduce_weight, a=self.negative_slope, nonlinearity="leaky_relu")
        nn.init.zeros_(self.reduce_bias)
        if self.initialisation == "he":
            nn.init.kaiming_normal_(self.expand_weight, nonlinearity="linear")
        else:
            nn.init.zeros_(self.expand_weight)
        nn.init.constant_(self.expand_bias, self.initial_logit / self.temperature)

    def forward(self, x: Tensor) -> Tensor:
        """Natural logits t * alpha (..., C) for pooled features (..., C_context), in the precision of the latter."""
        reduce_weight, reduce_bias = self.reduce_weight.to(x.dtype), self.reduce_bias.to(x.dtype)
        expand_weight, expand_bias = self.expand_weight.to(x.dtype), self.expand_bias.to(x.dtype)
        hidden = F.leaky_relu(F.linear(x, reduce_weight, reduce_bias), self.negative_slope)
        # t times the last layer, applied where there are the fewest numbers to multiply.
        return F.linear(self.temperature * hidden, expand_weight, self.temperature * expand_bias)

    @property
    def trainable(self) -> bool:
        """Whether any parameter wants a gradient."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def extra_repr(self) -> str:
        return f"{self.context_features} -> {len(self.reduce_bias)} -> {self.features}"


class GlobalLogits(Encoder):
    """No context: logits that are learned for each unit and are the same for every sample.

    The last layer's bias of an :class:`Encoder` without its weights, so that both start at the same logit.
    """

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"expand_bias": (self.features,)}

    def reset_parameters(self) -> None:
        nn.init.constant_(self.expand_bias, self.initial_logit / self.temperature)

    def forward(self, x: Tensor) -> Tensor:
        return (self.temperature * self.expand_bias.to(x.dtype)).expand(*x.shape[:-1], -1)

    def extra_repr(self) -> str:
        return f"{self.features}, the same for every sample"


class _Lazy(LazyModuleMixin, Encoder):
    """Learns the number of features from the first input, as torch's lazy modules do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(1, 1, **options)
        self.features = self.context_features = 0
        for name, parameter in list(self.named_parameters()):
            lazy = UninitializedParameter(device=parameter.device, dtype=parameter.dtype)  # type: ignore[call-arg]
            setattr(self, name, lazy)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.features:
            super().reset_parameters()

    def initialize_parameters(self, x: Tensor) -> None:
        """Give the parameters their shapes for inputs (..., C_context); as many logits if the site did not say."""
        self.context_features = x.shape[-1]
        self.features = self.features or self.context_features
        if not self.has_uninitialized_params():
            return
        with torch.no_grad():
            for name, shape in self.shapes().items():
                getattr(self, name).materialize(shape)
            self.reset_parameters()

    def extra_repr(self) -> str:
        return "features inferred at the first call"


class LazyEncoder(_Lazy, Encoder):
    """A lazy :class:`Encoder`."""

    cls_to_become = Encoder


class LazyGlobalLogits(_Lazy, GlobalLogits):
    """Lazy :class:`GlobalLogits`."""

    cls_to_become = GlobalLogits


ENCODERS: dict[EncoderKind, type[Encoder]] = {"bottleneck": Encoder, "global": GlobalLogits}
LAZY_ENCODERS: dict[EncoderKind, type[_Lazy]] = {"bottleneck": LazyEncoder, "global": LazyGlobalLogits}
