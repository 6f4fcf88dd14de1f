"""Every unbiased estimator's mean gradient is the exact gradient of the ELBO, for theta, phi and eta."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.training.estimators import LeaveOneOut, MovingAverage, Reinforce, SampledARM, disarm
from tests.exact.enumeration import FAILURE_RATE, Gradients, assert_mean, exact_gradients, sampled_gradients

EXAMPLES, COPIES, REPEATS = 3, 500, 100
KL_WEIGHT = 0.7

UNBIASED = {
    **{name: name for name in ("auto", "sequential-arm", "sequential-disarm", "sampled-arm", "sampled-disarm")},
    "reinforce-moving": Reinforce(MovingAverage(0.8)),
    "reinforce-leave-one-out": Reinforce(LeaveOneOut(2)),
    "sampled-2-of-2": SampledARM(2, disarm),
}


class Network(nn.Module):
    """Two or three dependent sites with a residual connection; every rate depends on the input and on earlier masks."""

    def __init__(self, *families: str) -> None:
        super().__init__()
        widths = [1 if family == "gaussian" else 2 for family in families]
        # Quadrature over Gaussian noise wants smooth encoders.
        slope = 1.0 if "gaussian" in families else 0.2
        options = {"temperature": 1.3, "reduction": 1, "p": 0.35, "negative_slope": slope}
        self.inputs = nn.ModuleList(nn.Linear(2, width) for width in widths)
        self.sites = nn.ModuleList(
            cd.ContextualDropout(width, family=family, **options)  # type: ignore[arg-type]
            for width, family in zip(widths, families, strict=True)
        )
        self.outputs = nn.ModuleList(nn.Linear(width, 2) for width in widths)
        self.head = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        for linear, site, output in zip(self.inputs, self.sites, self.outputs, strict=True):
            x = x + output(site(torch.tanh(linear(x)) + 1))
        logits: Tensor = self.head(x)
        return logits


def problem(*families: str) -> tuple[Network, Tensor, Tensor]:
    torch.manual_seed(8)
    model = Network(*families).double()
    # Weights that are neither small nor extreme: rates that depend much on what earlier masks let through, which
    # are the paths that biased estimators miss.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "weight" in name:
                parameter.copy_(parameter.sign() * torch.empty_like(parameter).uniform_(0.6, 1.0))
        for site in model.sites:
            site.prior_logit.add_(0.4)
    return model, torch.randn(EXAMPLES, 2).double(), torch.randint(3, (EXAMPLES,))


def log_likelihood(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    return lambda: -3 * F.cross_entropy(model(x), y, reduction="none")


@functools.cache
def reference(families: tuple[str, ...]) -> tuple[float, Gradients]:
    model, x, y = problem(*families)
    return exact_gradients(model, list(model.sites), log_likelihood(model, x, y), KL_WEIGHT)


def check(families: tuple[str, ...], estimator: object, kl: str) -> None:
    model, x, y = problem(*families)
    _, expected = reference(families)
    objective = cd.ELBO(model, estimator, KL_WEIGHT, kl=kl)  # type: ignore[arg-type]
    closure = log_likelihood(model, x.repeat(COPIES, 1), y.repeat(COPIES))
    samples = sampled_gradients(model, lambda: objective(closure).loss, REPEATS)
    for name, gradient in expected.items():
        assert_mean(samples[name], gradient, FAILURE_RATE / len(expected), name)
    # The comparison means something only if the gradients stand out from their standard errors.
    strong = [(samples[n].std(0) / REPEATS**0.5 < 0.2 * g.abs().max()).all() for n, g in expected.items()]
    assert sum(map(bool, strong)) > len(strong) / 2


@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
@pytest.mark.parametrize("name", UNBIASED)
def test_bernoulli(name: str, kl: str) -> None:
    check(("bernoulli", "bernoulli"), UNBIASED[name], kl)


@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
def test_gaussian(kl: str) -> None:
    check(("gaussian", "gaussian"), "reparameterized", kl)


@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
@pytest.mark.parametrize(
    "families", [("gaussian", "bernoulli"), ("bernoulli", "gaussian"), ("bernoulli", "gaussian", "bernoulli")]
)
def test_mixed(families: tuple[str, ...], kl: str) -> None:
    check(families, "sequential-disarm", kl)


def test_loss_is_minus_the_mean_elbo() -> None:
    model, x, y = problem("bernoulli", "bernoulli")
    expected, _ = reference(("bernoulli", "bernoulli"))
    objective = cd.ELBO(model, kl_weight=KL_WEIGHT)
    closure = log_likelihood(model, x.repeat(COPIES, 1), y.repeat(COPIES))
    with torch.no_grad():
        losses = torch.stack([objective(closure).loss for _ in range(REPEATS)])
    assert_mean(losses, torch.tensor(expected), FAILURE_RATE, "loss")


@pytest.mark.parametrize("name", ["independent-arm", "independent-disarm", "concrete", "straight-through"])
def test_biased_estimators_are_noticed(name: str) -> None:
    """The same comparison rejects the estimators that are documented as biased."""
    with pytest.raises(AssertionError, match="is not"):
        check(("bernoulli", "bernoulli"), name, "closed-form")


def test_truncated_pathwise_gradient_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"sites\.0\.encoder.*is not"):
        check(("gaussian", "gaussian"), "truncated-reparameterized", "closed-form")
