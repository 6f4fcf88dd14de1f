"""How noisy the estimators are: the variance of phi's gradient on the paper's MLP, at the same parameters and data."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from networks import contextual, mlp
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.training.estimators import (
    Concrete,
    Estimator,
    IndependentARM,
    LeaveOneOut,
    MovingAverage,
    Reinforce,
    SampledARM,
    SequentialARM,
    StraightThrough,
    arm,
    disarm,
)

ESTIMATORS: dict[str, Estimator] = {
    "reinforce, moving average": Reinforce(MovingAverage()),
    "reinforce, leave-one-out": Reinforce(LeaveOneOut(1)),
    "sequential-arm": SequentialARM(arm),
    "sequential-disarm": SequentialARM(disarm),
    "sampled-arm (k=1)": SampledARM(1, arm),
    "sampled-disarm (k=1)": SampledARM(1, disarm),
    "sampled-disarm (k=2)": SampledARM(2, disarm),
    "independent-arm (biased)": IndependentARM(arm),
    "independent-disarm (biased)": IndependentARM(disarm),
    "straight-through (biased)": StraightThrough(),
    "concrete (biased)": Concrete(),
}
SETTLING = 20  # steps that a moving baseline needs


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int, kl_weight: float = 1.0) -> None:
    """A little, so that rewards are those of training."""
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    objective = cd.ELBO(model, "sampled-disarm", kl_weight)
    for _ in range(steps):
        optimizer.zero_grad()
        objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
        optimizer.step()


def phi_gradients(
    model: nn.Module, x: Tensor, y: Tensor, estimator: Estimator, repeats: int, kl_weight: float = 1.0
) -> list[Tensor]:
    """For each site, the gradients of its encoder in ``repeats`` independent steps, (repeats, parameters)."""
    objective = cd.ELBO(model, estimator, kl_weight)
    sites = list(cd.sites(model).values())
    rows: list[list[Tensor]] = [[] for _ in sites]
    for repeat in range(SETTLING + repeats):
        model.zero_grad()
        objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
        if repeat >= SETTLING:
            for row, site in zip(rows, sites, strict=True):
                row.append(torch.cat([p.grad.flatten() for p in site.encoder.parameters() if p.grad is not None]))
    return [torch.stack(row) for row in rows]


def gradient_variances(repeats: int, steps: int = 30) -> dict[str, list[float]]:
    """For each estimator, per site, the variance of the gradient of its encoder summed over parameters.

    The data are made up: ten classes, each around a centre of its own.
    """
    torch.manual_seed(0)
    centres, y = torch.rand(10, 784), torch.randint(10, (128,))
    x = centres[y] + 0.5 * torch.randn(128, 784)
    model = mlp(contextual("bernoulli"))
    train(model, x, y, steps)
    return {
        name: [gradients.var(0).sum().item() for gradients in phi_gradients(model, x, y, estimator, repeats)]
        for name, estimator in ESTIMATORS.items()
    }
