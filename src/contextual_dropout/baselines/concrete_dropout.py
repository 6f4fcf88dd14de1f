"""Concrete dropout: one learned drop rate per layer, through relaxed masks (Gal, Hron and Kendall, 2017)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.baselines.dropout_layers import replace_dropout, shared_axes, unit_shape
from contextual_dropout.baselines.penalised import Penalty
from contextual_dropout.nn.stochastic import Stochastic

__all__ = ["ConcreteDropout", "concrete_dropout"]

Model = TypeVar("Model", bound=nn.Module)
#: Layers whose weights the masks drop.
_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class ConcreteDropout(Stochastic, Penalty):
    """``x = u z / (1 - p)`` with ``z = 1 - sigmoid((logit p + logit pi) / t)``, pi ~ Uniform(0, 1).

    The penalty is the KL of the weights behind the layer, up to a constant,
    ``l^2 ||W||^2 / (2 (1 - p)) - K H(p)``: K units, H the entropy of a Bernoulli, l the prior's length scale. (The
    paper's ``l^2 (1 - p) ||M||^2 / 2``, whose masks are not rescaled: M = W / (1 - p).) Where masks are drawn for each
    position of a sequence or an image, K is still the number of inputs that W has, as it is for each example.

    Args:
        p: initial drop rate.
        temperature: t of the relaxation.
        length_scale: l; the weights' prior is N(0, 1/l^2).
        shared: how many trailing axes share one pi.

    Shape:
        Input and output of any shape, the same for both.
    """

    def __init__(
        self, p: float = 0.2, temperature: float = 0.1, *, length_scale: float = 1e-2, shared: int = 0
    ) -> None:
        super().__init__()
        if not 0 < p < 1:
            raise ValueError(f"p is an initial drop rate strictly between 0 and 1, got {p}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature
        self.length_scale = length_scale
        self.shared = shared
        self.drop_logit = nn.Parameter(torch.tensor(math.log(p) - math.log1p(-p)))
        self.units = 0
        self._consumer: list[nn.Module] = []  # in a list, so that it is not a submodule

    @property
    def drop_probability(self) -> Tensor:
        """p, a scalar."""
        return self.drop_logit.sigmoid()

    def acts_on(self, layer: nn.Module) -> None:
        """Let the penalty count the weights of the layer that reads what this one drops."""
        self._consumer = [layer]

    def forward(self, u: Tensor) -> Tensor:
        if not self.stochastic:
            return u
        shape = unit_shape(u, self.shared)
        self.units = math.prod(shape[1:])
        a = self._precise_logit()
        noise = torch.rand(shape, dtype=a.dtype, device=u.device).logit_(torch.finfo(a.dtype).eps)
        kept = torch.sigmoid((noise + a) / -self.temperature)
        return u * (kept * (1 + a.exp())).to(u.dtype)  # 1 / (1 - p) = 1 + exp(logit p)

    def penalty(self) -> Tensor:
        a = self._precise_logit()
        entropy = a.sigmoid() * F.softplus(-a) + (-a).sigmoid() * F.softplus(a)
        penalty, units = torch.zeros_like(a), self.units
        for weight, inputs in self._weights():
            penalty = penalty + self.length_scale**2 / 2 * weight.square().sum(dtype=a.dtype) * (1 + a.exp())
            units = min(units, inputs)
        return penalty - units * entropy

    def _weights(self) -> Iterator[tuple[Tensor, int]]:
        """The weights behind the layer and the number of their inputs."""
        for layer in self._consumer:
            weight: Tensor = layer.weight  # type: ignore[assignment]
            yield weight, weight.shape[1] * getattr(layer, "groups", 1)

    def _precise_logit(self) -> Tensor:
        """logit p, at least in single precision."""
        return self.drop_logit.to(torch.promote_types(self.drop_logit.dtype, torch.float32))

    def extra_repr(self) -> str:
        return f"p={self.drop_probability.item():.3g}, temperature={self.temperature}, shared={self.shared}"


def concrete_dropout(
    model: Model, p: float | None = None, *, temperature: float = 0.1, length_scale: float = 1e-2, **options: Any
) -> Model:
    """The network with a learned rate in each dropout layer's place; train with ``PenalisedLikelihood``.

    The weights that a rate is learned for are those of the next linear or convolutional layer in the order in which
    the model registers them; where another layer reads the output, name it with :meth:`ConcreteDropout.acts_on`.

    Args:
        model: a network with dropout layers.
        p: initial drop rate; that of each layer by default.
        temperature: of the relaxed masks.
        length_scale: of the weights' prior.
        options: ``exclude``, ``inplace``.

    Example:
        >>> concrete_dropout(nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 3)))[0]
        ConcreteDropout(p=0.2, temperature=0.1, shared=0)
    """

    def make(layer: _DropoutNd) -> nn.Module:
        rate = layer.p if p is None else p
        return ConcreteDropout(rate, temperature, length_scale=length_scale, shared=shared_axes(layer))

    model = replace_dropout(model, make, **options)
    waiting: list[ConcreteDropout] = []
    for module in model.modules():
        if isinstance(module, ConcreteDropout):
            waiting.append(module)
        elif isinstance(module, _WEIGHTED):
            for layer in waiting:
                layer.acts_on(module)
            waiting = []
    return model
