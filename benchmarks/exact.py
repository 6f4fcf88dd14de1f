"""Bias and variance of the estimators against the exact gradient: a network so small that every mask can be tried."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from variance import ESTIMATORS, phi_gradients, train

import contextual_dropout as cd

INPUTS, HIDDEN, CLASSES, EXAMPLES = 10, 6, 3, 16
KL_WEIGHT = 1e-3


def network() -> nn.Sequential:
    """Two sites, the second of which reads what the first one left."""

    def site(features: int) -> cd.ContextualDropout:
        return cd.ContextualDropout(features, 0.2, reduction=2, temperature=1.0)

    layers = (site(INPUTS), nn.Linear(INPUTS, HIDDEN), nn.ReLU(), site(HIDDEN), nn.Linear(HIDDEN, CLASSES))
    return nn.Sequential(*layers).double()


def masks(features: int) -> Tensor:
    """Every mask, (2^C, C)."""
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=features)), dtype=torch.float64)


def probability(masks: Tensor, logits: Tensor) -> Tensor:
    """Of each mask (M, C) under logits (..., C): (..., M)."""
    return (F.logsigmoid(logits) @ masks.T + F.logsigmoid(-logits) @ (1 - masks).T).exp()


def exact_gradient(model: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the loss for phi: the ELBO as a sum over the masks of both sites, by autograd."""
    first, linear, relu, second, head = model
    q1 = probability(masks(INPUTS), first.logits(x))  # (B, M1)
    u = relu(linear(x.unsqueeze(1) * masks(INPUTS))).detach()  # (B, M1, C): encoders read behind a stop-gradient
    logits = second.logits(u.flatten(0, 1)).unflatten(0, u.shape[:2])
    q2 = probability(masks(HIDDEN), logits)  # (B, M1, M2)
    scores = head(u.unsqueeze(2) * masks(HIDDEN)).detach()  # (B, M1, M2, classes)
    log_likelihood = scores.log_softmax(-1)[torch.arange(len(y)), ..., y]
    kl1 = first.family.kl(first.logits(x), first.prior_logit.sum())  # (B,)
    kl2 = second.family.kl(logits.flatten(0, 1), second.prior_logit.sum()).unflatten(0, u.shape[:2])  # (B, M1)
    given_first = (q2 * log_likelihood).sum(-1) - KL_WEIGHT * kl2
    elbo = (q1 * given_first).sum(-1) - KL_WEIGHT * kl1
    phi = [p for site in (first, second) for p in site.encoder.parameters()]
    return torch.cat([g.flatten() for g in torch.autograd.grad(-elbo.mean(), phi)])


def errors(repeats: int, steps: int = 100) -> dict[str, dict[str, float]]:
    """Bias, standard deviation and root mean squared error of each estimator, relative to the length of the gradient.

    Each is the length of a vector over all of phi. ``floor`` is how large a bias of zero looks for want of repeats.
    """
    torch.manual_seed(0)
    centres, y = torch.randn(CLASSES, INPUTS).double(), torch.randint(CLASSES, (EXAMPLES,))
    x = centres[y] + torch.randn(EXAMPLES, INPUTS).double()
    model = network()
    train(model, x, y, steps, KL_WEIGHT)
    expected = exact_gradient(model, x, y)
    table = {}
    for name, estimator in ESTIMATORS.items():
        sites = torch.cat(phi_gradients(model, x, y, estimator, repeats, KL_WEIGHT), 1)  # (repeats, phi)
        variance, bias = sites.var(0).sum(), (sites.mean(0) - expected).norm()
        row = {"bias": bias, "sd": variance.sqrt(), "rmse": (sites - expected).square().sum(1).mean().sqrt()}
        row["floor"] = (variance / repeats).sqrt()
        table[name] = {key: (value / expected.norm()).item() for key, value in row.items()}
    return table
