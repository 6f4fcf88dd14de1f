"""The ELBO and its gradients without sampling: every Bernoulli mask enumerated, Gaussian noise by quadrature."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import contextual_dropout as cd
from contextual_dropout.nn.site import masked
from contextual_dropout.nn.stop_gradient import Gate

FAILURE_RATE = 2e-5
NODES = 57

Gradients = dict[str, Tensor]


def _choices(site: cd.ContextualDropout, units: int | None) -> list[tuple[Tensor, float]]:
    """Values for a draw with their fixed weights: masks for Bernoulli sites, noise for Gaussian ones."""
    if site.family.name == "bernoulli":
        masks = itertools.product([0.0, 1.0], repeat=units or site.features)
        return [(torch.tensor(z, dtype=torch.float64), 1.0) for z in masks]
    assert site.features == 1, "quadrature over one unit only"
    # The trapezoidal rule: for a Gaussian weight its error falls exponentially with the step.
    nodes = np.linspace(-7, 7, NODES)
    weights = stats.norm.pdf(nodes)
    total = weights.sum()
    return [(torch.tensor([node]), weight / total) for node, weight in zip(nodes, weights, strict=True)]


class _Forced(TorchFunctionMode):
    """A pass whose draws are given; nothing is stopped, so that autograd sees every path."""

    def __init__(self, values: Iterable[tuple[Tensor, float]]) -> None:
        super().__init__()
        self.values = iter(values)
        self.probability: Tensor | float = 1.0
        self.kl: Tensor | float = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not masked:
            return func(*args, **(kwargs or {}))
        site, u, context = args
        logits = site.logits(u, context, Gate(open=True))
        value, weight = next(self.values)
        rows = logits.numel() // value.numel()  # the value is that of all units of one row
        value = value.expand(rows, -1).reshape(logits.shape)
        if site.family.name == "bernoulli":
            keep = torch.sigmoid(logits)
            chance = torch.where(value == 1, keep, 1 - keep)
            self.probability = self.probability * chance.reshape(rows, -1).prod(-1)
            prior = torch.distributions.Bernoulli(site.prior_keep_probability)
            kl = torch.distributions.kl_divergence(torch.distributions.Bernoulli(keep), prior)
            self.kl = self.kl + kl.reshape(rows, -1).sum(-1)
            return site.apply_mask(u, value)
        scale, prior_scale = (-logits / 2).exp(), (-site.prior_logit / 2).exp()
        self.probability = self.probability * weight
        ones = torch.ones_like(scale)
        posterior, prior = torch.distributions.Normal(ones, scale), torch.distributions.Normal(ones, prior_scale)
        self.kl = self.kl + torch.distributions.kl_divergence(posterior, prior).sum(-1)
        return site.apply_mask(u, 1 + scale * value)


def exact_gradients(
    model: nn.Module,
    sites: list[cd.ContextualDropout],
    closure: Callable[[], Tensor],
    kl_weight: float,
    units: int | None = None,
) -> tuple[float, Gradients]:
    """The loss and its gradients; theta's holds the masks' probabilities and the masks themselves fixed.

    ``units`` is how many a site has for each log-likelihood of the closure, ``features`` by default.
    """
    elbo: Tensor | float = 0.0
    likelihood: Tensor | float = 0.0
    for values in itertools.product(*(_choices(site, units) for site in sites)):
        with _Forced(values) as forced:
            log_likelihood = closure()
        elbo = elbo + forced.probability * (log_likelihood - kl_weight * forced.kl)
        with _Forced(values) as forced, _held(sites):
            fixed = closure()
        likelihood = likelihood + torch.as_tensor(forced.probability).detach() * fixed
    names = dict(model.named_parameters())
    variational = {name: p for name, p in names.items() if "encoder" in name or "prior_logit" in name}
    network = {name: p for name, p in names.items() if name not in variational}
    gradients = _grad(-elbo.mean(), variational) | _grad(-likelihood.mean(), network)
    return -elbo.mean().item(), gradients


class _held:
    """Masks that do not carry gradients: what theta's gradient is defined with."""

    def __init__(self, sites: list[cd.ContextualDropout]) -> None:
        self.sites = sites

    def __enter__(self) -> None:
        for site in self.sites:
            site.apply_mask = lambda u, mask, site=site: type(site).apply_mask(site, u, mask.detach())  # type: ignore[method-assign]

    def __exit__(self, *exception: object) -> None:
        for site in self.sites:
            del site.apply_mask


def _grad(value: Tensor, parameters: dict[str, Tensor]) -> Gradients:
    gradients = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
    }


def sampled_gradients(model: nn.Module, step: Callable[[], Tensor], repeats: int) -> dict[str, Tensor]:
    """Gradients of ``repeats`` independent losses, (repeats, *shape) each."""
    rows: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    for _ in range(repeats):
        model.zero_grad()
        step().backward()
        for name, parameter in model.named_parameters():
            rows[name].append(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone())
    return {name: torch.stack(gradients) for name, gradients in rows.items()}


def assert_mean(samples: Tensor, expected: Tensor, failure_rate: float, label: str) -> None:
    """A t-test per entry, Bonferroni-corrected: a right estimator fails with at most ``failure_rate``."""
    repeats = len(samples)
    error = samples.std(0) / repeats**0.5
    quantile = stats.t.ppf(1 - failure_rate / (2 * max(expected.numel(), 1)), repeats - 1)
    excess = (samples.mean(0) - expected).abs() - quantile * error
    # A parameter whose gradient does not vary is compared to rounding.
    assert (excess <= 1e-9).all(), f"{label}: mean {samples.mean(0)} is not {expected} within {quantile * error}"
