"""Make a network, its objective and its optimizer from a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from contextual_dropout import baselines
from contextual_dropout.baselines import PenalisedLikelihood, Penalty
from contextual_dropout.conversion.contextualize import contextualize
from contextual_dropout.conversion.record import sites
from contextual_dropout.inspection.parameters import parameter_groups
from contextual_dropout.nn.encoder import Encoder
from contextual_dropout.training.objective import ELBO, Step
from contextual_dropout.training.schedules import LinearWarmup
from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.models import load_weights, mcan, mlp, resnet18, vit, wide_resnet
from contextual_dropout_lab.runs.config import RunConfig

__all__ = ["CONVERSIONS", "FLAT", "NETWORKS", "build_model", "build_objective", "build_optimizer", "rate_factor"]

Objective = Callable[[Callable[[], Tensor]], Step]
Choice = TypeVar("Choice")

#: The verbs that a configuration may name.
CONVERSIONS: dict[str, Callable[..., nn.Module]] = {
    "none": lambda model: model,
    "mc_dropout": baselines.mc_dropout,
    "gaussian_dropout": baselines.gaussian_dropout,
    "concrete_dropout": baselines.concrete_dropout,
    "bayes_by_backprop": baselines.bayes_by_backprop,
    "contextual_gating": baselines.contextual_gating,
    "gated_dropout": baselines.gated_dropout,
    "learnable_dropout": baselines.learnable_dropout,
    "contextualize": partial(contextualize, positions="pooled"),  # none of the networks is causal
}
#: Networks for images (C, H, W); those of :data:`FLAT` take flat inputs.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "wide_resnet": wide_resnet,
    "resnet18": resnet18,
    "vit": vit,
    "mcan": mcan,
}
FLAT = ("mlp",)
#: Networks that read words beside regions of an image.
WITH_QUESTIONS = ("mcan",)
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def build_model(config: RunConfig, shape: tuple[int, ...], classes: int, weights: Path | None = None) -> nn.Module:
    """The network of a run, with parameters drawn from its seed.

    Args:
        config: the run.
        shape: of one input.
        classes: logits.
        weights: a file of the plain network's, to start from; without the parts in ``config.weights_skip``.

    Raises:
        ConfigError: the weights cannot be read, or are not of this network.
    """
    convert = _choose("conversion", config.conversion, CONVERSIONS)
    torch.manual_seed(config.seed)
    plain = _plain(config, shape, classes)
    if weights is not None:
        try:
            load_weights(plain, weights, skip=config.weights_skip)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{config.name} cannot start from its weights: {error}") from error
    model = convert(plain, **config.options)
    with torch.no_grad():
        model.eval()(*_blank(config, shape))  # lazy layers get their shapes
    return model


def _blank(config: RunConfig, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """An input that says nothing."""
    x = torch.zeros(1, *shape)
    return (x, torch.ones(1, 1, dtype=torch.long)) if config.network in WITH_QUESTIONS else (x,)


def _plain(config: RunConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    build = _choose("network", config.network, NETWORKS)
    if config.network in FLAT:
        return build(math.prod(shape), config.hidden, classes, config.p, **config.network_options)
    if config.network in WITH_QUESTIONS:
        return build(answers=classes, features=shape[-1], p=config.p, **config.network_options)
    return build(classes=classes, p=config.p, **config.network_options)


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
    """The optimizer that the configuration names, with separate learning rates for encoders and priors if it has them.

    Weight decay is for weights: it would pull learned rates towards one half, and what pays a :class:`Penalty` has a
    prior of its own.
    """
    options: dict[str, Any] = {"name": "adam", "lr": 1e-3} | config.optimizer
    build = _choose("optimizer", options.pop("name"), OPTIMIZERS)
    for key in ("milestones", "factor", "warmup_epochs"):
        options.pop(key, None)
    groups: dict[str, dict[str, Any]] = {
        name: {"lr": options.pop(f"{name}_lr")} for name in ("phi", "eta") if f"{name}_lr" in options
    }
    decay = options.pop("weight_decay", 0.0)
    split = parameter_groups(model, theta={"weight_decay": decay}, **groups)
    return build(_without_decay(model, split) if decay else split, fused=True, **options)


def _without_decay(model: nn.Module, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups with one more, if theta has such parameters: of penalised layers and of the encoders of gates."""
    theta, *others = groups
    exempt = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, Penalty | Encoder)
        for parameter in module.parameters()
    }
    rates = [parameter for parameter in theta["params"] if id(parameter) in exempt]
    if not rates:
        return groups
    weights = [parameter for parameter in theta["params"] if id(parameter) not in exempt]
    return [{**theta, "params": weights}, *others, {"name": "rates", "params": rates, "weight_decay": 0.0}]


def rate_factor(config: RunConfig, epoch: int) -> float:
    """The factor on all learning rates in an epoch: ``factor`` for every milestone that has passed.

    In the first ``warmup_epochs`` they grow in equal steps up to the full rate.
    """
    warm: float = min(1.0, (epoch + 1) / max(1, config.optimizer.get("warmup_epochs", 1)))
    passed = sum(epoch >= milestone for milestone in config.optimizer.get("milestones", ()))
    factor: float = config.optimizer.get("factor", 0.1)
    return warm * math.pow(factor, passed)


def _choose(kind: str, name: str, choices: dict[str, Choice]) -> Choice:
    if name not in choices:
        raise ConfigError(f"unknown {kind} {name!r}: expected one of {', '.join(choices)}")
    return choices[name]
