"""From a configuration to a network and its objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout import baselines
from contextual_dropout.baselines import PenalisedLikelihood
from contextual_dropout.conversion.convert import contextualize, sites
from contextual_dropout.conversion.parameters import parameter_groups
from contextual_dropout.experiments.config import ConfigError, RunConfig
from contextual_dropout.models import mlp
from contextual_dropout.objective import ELBO, Step
from contextual_dropout.schedules import LinearWarmup

__all__ = ["CONVERSIONS", "build_model", "build_objective", "build_optimizer"]

Objective = Callable[[Callable[[], Tensor]], Step]

#: The verbs that a configuration may name.
CONVERSIONS: dict[str, Callable[..., nn.Module]] = {
    "mc_dropout": baselines.mc_dropout,
    "gaussian_dropout": baselines.gaussian_dropout,
    "concrete_dropout": baselines.concrete_dropout,
    "bayes_by_backprop": baselines.bayes_by_backprop,
    "contextual_gating": baselines.contextual_gating,
    "gated_dropout": baselines.gated_dropout,
    "learnable_dropout": baselines.learnable_dropout,
    "contextualize": contextualize,
}


def build_model(config: RunConfig, features: int, classes: int) -> nn.Module:
    """The network of a run, with parameters drawn from its seed."""
    if config.conversion not in CONVERSIONS:
        raise ConfigError(f"unknown conversion {config.conversion!r}: expected one of {', '.join(CONVERSIONS)}")
    torch.manual_seed(config.seed)
    model = CONVERSIONS[config.conversion](mlp(features, config.hidden, classes, config.p), **config.options)
    with torch.no_grad():
        model.eval()(torch.zeros(1, features))  # lazy layers get their shapes
    return model


def build_objective(config: RunConfig, model: nn.Module, examples: int, steps_per_epoch: int) -> Objective:
    """The ELBO for networks with sites, the penalised likelihood for others."""
    options = dict(config.objective)
    if not sites(model):
        return PenalisedLikelihood(model, examples, **options)
    warmup = options.pop("warmup_epochs", 0)
    weight = options.pop("kl_weight", 1.0)
    schedule = LinearWarmup(steps=warmup * steps_per_epoch, end=weight) if warmup else weight
    return ELBO(model, kl_weight=schedule, **options)


def build_optimizer(config: RunConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Adam, with learning rates of their own for encoders and priors where the configuration has them."""
    options: dict[str, Any] = {"lr": 1e-3} | config.optimizer
    groups: dict[str, dict[str, Any]] = {
        name: {"lr": options.pop(f"{name}_lr")} for name in ("phi", "eta") if f"{name}_lr" in options
    }
    weight_decay = options.pop("weight_decay", 0.0)
    groups["theta"] = {"weight_decay": weight_decay}
    return torch.optim.Adam(parameter_groups(model, **groups), fused=True, **options)
