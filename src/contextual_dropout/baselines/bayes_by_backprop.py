"""Bayes by Backprop: Gaussian weights, sampled in every pass, under a scale-mixture prior (Blundell et al., 2015)."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.baselines.penalised import Penalty
from contextual_dropout.conversion.selection import Selector, matcher
from contextual_dropout.nn.stochastic import Stochastic

__all__ = ["BayesianLayer", "ScaleMixture", "bayes_by_backprop"]

Model = TypeVar("Model", bound=nn.Module)
WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class ScaleMixture:
    """``p(w) = weight N(w; 0, wide^2) + (1 - weight) N(w; 0, narrow^2)``.

    Args:
        weight: pi, of the wide part.
        wide: s1, -log s1 = 0 in the paper.
        narrow: s2, -log s2 = 6 in the paper.
    """

    weight: float = 0.2
    wide: float = 1.0
    narrow: float = math.exp(-6)

    def __post_init__(self) -> None:
        if not (0 < self.weight < 1 and self.wide >= self.narrow > 0):
            raise ValueError(
                f"a mixture has a weight strictly between 0 and 1 and scales wide >= narrow > 0, got {self}"
            )

    def log_prob(self, w: Tensor) -> Tensor:
        """log p(w), elementwise, at least in single precision: 1 / narrow^2 is beyond half's range."""
        log_prob: Tensor = _LogMixture.apply(w.to(torch.promote_types(w.dtype, torch.float32)), self)  # type: ignore[no-untyped-call]
        return log_prob


class _LogMixture(torch.autograd.Function):
    """log p(w) is the wide part plus log(1 + o), o = exp(b - a w^2) the odds of the narrow part.

    Its derivative is -w / wide^2 - 2 a w o / (1 + o). Written out because autograd takes three times as long: there
    are as many of these as weights.
    """

    @staticmethod
    def forward(ctx: Any, w: Tensor, prior: ScaleMixture) -> Tensor:
        a = 0.5 * (1 / prior.narrow**2 - 1 / prior.wide**2)
        b = math.log((1 - prior.weight) / prior.weight) + math.log(prior.wide / prior.narrow)
        square = w.square()
        odds = (b - a * square).clamp_min_(-80).exp_()  # numbers below the normal range are slow
        ctx.save_for_backward(w * ((-2 * a) * (odds / (1 + odds)) - 1 / prior.wide**2))
        constant = math.log(prior.weight) - math.log(prior.wide) - 0.5 * math.log(2 * math.pi)
        return odds.log1p_().sub_(square, alpha=0.5 / prior.wide**2).add_(constant)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (derivative,) = ctx.saved_tensors
        return gradient * derivative, None


class BayesianLayer(Stochastic, Penalty):
    """A layer whose parameters are ``w = mu + s eps``, one draw for the batch.

    Its means are the wrapped layer's own parameters; the point estimate uses them.

    Args:
        layer: any layer; all of its parameters become random.
        prior: p(w).
        initial_scale: s at the beginning. The logarithm of s is what is learned.
    """

    def __init__(self, layer: nn.Module, prior: ScaleMixture, initial_scale: float = 0.02) -> None:
        super().__init__()
        if not initial_scale > 0:
            raise ValueError(f"initial_scale is a standard deviation, above 0, got {initial_scale}")
        self.layer = layer
        self.prior = prior
        self.log_scale = nn.ParameterDict(
            {
                name: nn.Parameter(torch.full_like(mean, math.log(initial_scale)))
                for name, mean in layer.named_parameters()
            }
        )
        self._log_ratio: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the graph of the last pass out of copies and files."""
        return self.__dict__ | {"_log_ratio": None}

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if not self.stochastic:
            return self.layer(*inputs, **keywords)
        noise = {name: torch.randn_like(log_scale) for name, log_scale in self.log_scale.items()}
        weights = {
            name: torch.addcmul(mean, self.log_scale[name].exp(), noise[name])
            for name, mean in self.layer.named_parameters()
        }
        if self.training:
            self._log_ratio = torch.stack(
                [self._divergence(name, weights[name], noise[name]) for name in weights]
            ).sum()
        return functional_call(self.layer, weights, inputs, keywords)

    def _divergence(self, name: str, w: Tensor, noise: Tensor) -> Tensor:
        """log q(w) - log p(w); log q = -log s - eps^2 / 2 - log sqrt(2 pi), where eps is given."""
        log_p = self.prior.log_prob(w).sum()
        constant = 0.5 * math.log(2 * math.pi) * noise.numel()
        log_scale: Tensor = self.log_scale[name]
        return -log_scale.to(log_p).sum() - 0.5 * noise.to(log_p).square().sum() - constant - log_p

    def penalty(self) -> Tensor:
        if self._log_ratio is None:
            raise RuntimeError("the layer has not been called in training mode yet: evaluate the likelihood first")
        return self._log_ratio


def bayes_by_backprop(
    model: Model,
    *,
    layers: Selector = WEIGHTED,
    prior: ScaleMixture | None = None,
    initial_scale: float = 0.02,
    inplace: bool = True,
) -> Model:
    """The network with random weights in the chosen layers and without dropout; train with ``PenalisedLikelihood``.

    Args:
        model: any network.
        layers: which layers, by type, name, regular expression or predicate; linear and convolutional by default.
        prior: the paper's mixture by default.
        initial_scale: of the weights' standard deviations.
        inplace: change the model itself, or a copy.

    Example:
        >>> model = bayes_by_backprop(nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 3)))
        >>> sum(parameter.numel() for parameter in model.parameters())
        30
    """
    model = model if inplace else copy.deepcopy(model)
    chosen = matcher(layers)
    modules = list(model.named_modules(remove_duplicate=False))
    found = {name: module for name, module in modules if name and chosen(name, module)}
    if not found:
        raise ValueError("no layer was selected for random weights: choose some by type or name with layers=")
    prior = prior or ScaleMixture()
    made = {
        module: BayesianLayer(module, prior, initial_scale).train(module.training)
        for module in dict.fromkeys(found.values())
    }
    for name, module in modules:
        if name and isinstance(module, _DropoutNd):
            model.set_submodule(name, nn.Identity().train(module.training))
    for name, module in modules:
        if module in made:  # under all its names
            model.set_submodule(name, made[module])
    return model
