"""The networks, data and methods that the tests of all baselines share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout import baselines

FAILURE_RATE = 2e-5
Objective = Callable[[Callable[[], Tensor]], cd.Step]


@dataclass(frozen=True)
class Method:
    """A verb with what it promises."""

    verb: Callable[..., nn.Module]
    stochastic: bool = True

    def objective(self, model: nn.Module, examples: int) -> Objective:
        return cd.ELBO(model) if cd.sites(model) else baselines.PenalisedLikelihood(model, examples)


METHODS = {
    "mc_dropout": Method(baselines.mc_dropout),
    "gaussian_dropout": Method(baselines.gaussian_dropout),
    "concrete_dropout": Method(baselines.concrete_dropout),
    "bayes_by_backprop": Method(baselines.bayes_by_backprop),
    "contextual_gating": Method(baselines.contextual_gating, stochastic=False),
    "gated_dropout": Method(baselines.gated_dropout),
    "learnable_dropout": Method(baselines.learnable_dropout),
}
STOCHASTIC = [name for name, method in METHODS.items() if method.stochastic]


def mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10)
    )


def cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout2d(0.2),
        nn.Conv2d(8, 4, 3),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


NETWORKS: dict[str, Callable[[], nn.Sequential]] = {"mlp": mlp, "cnn": cnn}


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 1, 8, 8) in [0, 1] and their labels."""
    data: Any = load_digits()
    return torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(data.target)


def batch(dtype: torch.dtype = torch.float32, examples: int = 6) -> tuple[Tensor, Tensor]:
    x, y = digits()
    return x[:examples].to(dtype), y[:examples]


def build(method: str, network: str, seed: int = 0) -> nn.Module:
    """A network after conversion whose lazy layers have their shapes."""
    torch.manual_seed(seed)
    model = METHODS[method].verb(NETWORKS[network]())
    with torch.no_grad():
        model.eval()(batch()[0])
    return model.train()


def log_likelihood(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    return lambda: -F.cross_entropy(model(x), y, reduction="none")


def step(method: str, model: nn.Module, dtype: torch.dtype = torch.float32) -> cd.Step:
    return METHODS[method].objective(model, 100)(log_likelihood(model, *batch(dtype)))
