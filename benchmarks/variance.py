"""How noisy the estimators are: the variance of phi's gradient on the paper's MLP, at the same parameters and data."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from networks import contextual, mlp
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.estimators import (
    IndependentARM,
    LeaveOneOut,
    MovingAverage,
    Reinforce,
    SampledARM,
    SequentialARM,
    arm,
    disarm,
)

ESTIMATORS = {
    "reinforce, moving average": Reinforce(MovingAverage()),
    "reinforce, leave-one-out": Reinforce(LeaveOneOut(1)),
    "sequential-arm": SequentialARM(arm),
    "sequential-disarm": SequentialARM(disarm),
    "sampled-arm (k=1)": SampledARM(1, arm),
    "sampled-disarm (k=1)": SampledARM(1, disarm),
    "sampled-disarm (k=2)": SampledARM(2, disarm),
    "independent-arm (biased)": IndependentARM(arm),
    "independent-disarm (biased)": IndependentARM(disarm),
}


def trained(steps: int) -> tuple[nn.Module, Tensor, Tensor]:
    """An MLP that has learned a little, so that its rewards are those of training; made-up data of ten classes."""
    torch.manual_seed(0)
    centres, y = torch.rand(10, 784), torch.randint(10, (128,))
    x = centres[y] + 0.5 * torch.randn(128, 784)
    model = mlp(contextual("bernoulli"))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    objective = cd.ELBO(model, "sampled-disarm")
    for _ in range(steps):
        optimizer.zero_grad()
        objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
        optimizer.step()
    return model, x, y


def gradient_variances(repeats: int, steps: int = 30) -> dict[str, list[float]]:
    """For each estimator, per site, the variance of the gradient of its encoder summed over parameters."""
    model, x, y = trained(steps)
    sites = [module for module in model if isinstance(module, cd.ContextualDropout)]  # type: ignore[attr-defined]
    table = {}
    for name, estimator in ESTIMATORS.items():
        objective = cd.ELBO(model, estimator)
        rows: list[list[Tensor]] = [[] for _ in sites]
        for repeat in range(repeats + 20):
            model.zero_grad()
            objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
            if repeat >= 20:  # a moving baseline needs some steps to settle
                for row, site in zip(rows, sites, strict=True):
                    row.append(torch.cat([p.grad.flatten() for p in site.encoder.parameters() if p.grad is not None]))
        table[name] = [torch.stack(row).var(0).sum().item() for row in rows]
    return table
